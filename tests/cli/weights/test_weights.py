"""`farflung weights`: what is shown, what is found wrong, and a sentence for every wrong input."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from farflung.cli import main
from farflung.state.event_log import SqlEventLog
from signed_run import CHUNK_BYTES, TRAINER, WEIGHTS, SignedRun, signed_run

RUN = signed_run(6)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with versions 0 to 5; not to be changed."""
    return RUN.write(tmp_path_factory.mktemp("weights") / "pool")


def weights(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main.main(("weights", *words))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def weights_json(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code, out, _ = weights(*words, "--json", capsys=capsys)
    return code, json.loads(out)


@pytest.fixture
def served() -> Iterator[tuple[str, SignedRun]]:
    """A run behind HTTP, as a coordinator or relay has it."""
    run = SignedRun(manifests=dict(RUN.manifests), chunks=dict(RUN.chunks))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, _, kind, name = self.path.partition("?")[0].split("/")
            if kind == "chunks":
                body = run.chunks.get(name)
            else:
                manifest = run.manifests.get(max(run.manifests) if name == "latest" else int(name))
                body = None if manifest is None else manifest.to_bytes()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", run
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_inspect_tells_how_a_version_travels(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = weights_json("inspect", f"{pool}@5", capsys=capsys)
    assert code == 0
    assert (found["version"], found["kind"], found["trainer"]) == (5, "patch", TRAINER.address)
    patches = [RUN.manifests[version].patch for version in (4, 5)]
    sizes = [patch.content.num_bytes for patch in patches if patch is not None]
    snapshot = len(RUN.files[3])
    assert found["fetch"] == {
        "weights": snapshot,
        "from_version_before": sizes[1],
        "from_nothing": snapshot + sum(sizes),
        "from_nothing_snapshot": 3,
        "from_nothing_patches": [4, 5],
    }
    assert {file["name"]: file["travels"] for file in found["files"]} == {
        WEIGHTS: False, "config.json": True, f"{WEIGHTS}.patch": True,
    }  # fmt: skip
    assert [each["version"] for each in found["kept"]] == [0, 1, 2, 3, 4, 5]
    assert [tensor["num_elements"] for tensor in found["tensors"]] == [1000, 1000, 1000]


def test_inspect_shows_the_newest_version_and_the_whole_chain(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = weights("inspect", str(pool), "--tensors", capsys=capsys)
    assert code == 0
    assert "5, a patch; at hand: 0, 1, 2, 3, 4, 5" in out
    assert "made by the patch" in out
    assert "3,000 F16" in out
    assert "model.layers.1.mlp.up_proj.weight" in out


def test_of_an_adapter_the_base_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = signed_run(1)
    run.publish_adapter(save({"lora_a": np.zeros((4, 2), np.float32)}))
    folder = run.write(tmp_path / "lora")
    _, found = weights_json("inspect", str(folder), capsys=capsys)
    adapter = next(file["num_bytes"] for file in found["files"] if file["name"] == "adapter_model.safetensors")
    assert (found["kind"], found["fetch"]["from_version_before"]) == ("adapter", adapter)
    assert found["fetch"]["from_nothing"] == adapter + len(run.files[0])
    assert weights("verify", str(folder), capsys=capsys)[0] == 0
    _, found = weights_json("diff", f"{folder}@0", "@1", capsys=capsys)
    assert (found["num_changed"], found["only_new"]) == (0, ["lora_a"])


def test_while_a_run_is_running_its_address_is_asked_for(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = shutil.copytree(pool, tmp_path / "running")
    log = SqlEventLog(f"sqlite:///{running}/coordinator.db")
    try:
        code, _, err = weights("inspect", str(running), capsys=capsys)
    finally:
        log.close()
    assert code == 2
    assert "while it runs, give its coordinator's address instead" in err


def test_verify_finds_a_sound_run_sound(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = weights("verify", str(pool), capsys=capsys)
    assert code == 0
    assert f"versions 0 to 5, signed by {TRAINER.address}: " in out
    code, found = weights_json("verify", f"{pool}@2", "--trainer", TRAINER.address.lower(), capsys=capsys)
    assert (code, found["versions"], found["findings"]) == (0, [0, 1, 2], [])


def test_verify_names_chunk_and_bytes_and_ends_with_1(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(pool, tmp_path / "broken")
    file = next(file for file in RUN.manifests[3].files if file.name == WEIGHTS)
    path = broken / "store" / "chunks" / file.chunks[1].sha256
    path.write_bytes(b"?" + path.read_bytes()[1:])
    code, out, _ = weights("verify", str(broken), capsys=capsys)
    assert code == 1
    assert f"version 3, {WEIGHTS}, chunk 1, bytes {CHUNK_BYTES} to {2 * CHUNK_BYTES}: chunk_digest:" in out
    assert "1 thing is wrong" in out
    path.unlink()
    code, found = weights_json("verify", f"{broken}@5", capsys=capsys)
    assert code == 1
    assert [(each["version"], each["reason"], each["first_byte"]) for each in found["findings"]] == [
        (3, "missing", CHUNK_BYTES),
        (4, "missing", None),
        (5, "missing", None),
    ]


def test_verify_by_another_key_is_wrong(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = weights("verify", f"{pool}@0", "--trainer", "0x" + "12" * 20, capsys=capsys)
    assert code == 1
    assert f"version 0, manifest: bad_signature: Manifest is signed by {TRAINER.address}" in out


def test_files_are_checked_against_a_saved_manifest(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "landed"
    folder.mkdir()
    saved = folder / "manifest.json"
    assert weights("inspect", f"{pool}@4", "--save", str(saved), capsys=capsys)[0] == 0
    (folder / WEIGHTS).write_bytes(RUN.files[4])
    (folder / "config.json").write_bytes(b"{}")
    assert weights("verify", str(saved), capsys=capsys)[0] == 0
    assert weights("verify", f"{pool}@4", "--files", str(folder), capsys=capsys)[0] == 0

    damaged = bytearray(RUN.files[4])
    damaged[CHUNK_BYTES] ^= 1
    (folder / WEIGHTS).write_bytes(damaged)
    (folder / "config.json").unlink()
    code, found = weights_json("verify", str(saved), capsys=capsys)
    assert code == 1
    assert [(each["where"], each["reason"], each["chunk"]) for each in found["findings"]] == [
        ("config.json", "missing", None),
        (WEIGHTS, "chunk_digest", 1),
    ]
    (folder / WEIGHTS).write_bytes(b"")
    code, out, _ = weights("verify", str(saved), capsys=capsys)
    assert "file_size: 0 bytes in place of" in out


def test_a_landed_patch_is_checked_in_place_of_what_it_makes(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patch = RUN.manifests[4].patch
    assert patch is not None
    (tmp_path / "config.json").write_bytes(b"{}")
    data = b"".join(RUN.chunks[chunk.sha256] for chunk in patch.content.chunks)
    (tmp_path / patch.content.name).write_bytes(data)
    assert weights("verify", f"{pool}@4", "--files", str(tmp_path), capsys=capsys)[0] == 0
    (tmp_path / patch.content.name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert weights("verify", f"{pool}@4", "--files", str(tmp_path), capsys=capsys)[0] == 1


def test_versions_behind_http_are_looked_at_and_checked_too(
    served: tuple[str, SignedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    url, run = served
    code, found = weights_json("inspect", url, capsys=capsys)
    assert (code, found["version"], [each["version"] for each in found["kept"]]) == (0, 5, [3, 4, 5])
    assert weights("verify", f"{url}@2", capsys=capsys)[0] == 0
    assert weights_json("diff", f"{url}@4", "@5", capsys=capsys)[1]["num_changed"] == 15
    patch = run.manifests[2].patch
    assert patch is not None
    run.chunks[patch.content.chunks[0].sha256] = b"\0" * patch.content.num_bytes
    code, found = weights_json("verify", f"{url}@2", capsys=capsys)
    assert code == 1
    assert found["findings"][0]["where"] == patch.content.name


def test_diff_counts_what_changed_and_weighs_the_patch(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "density.png"
    code, found = weights_json("diff", f"{pool}@4", "@5", "--picture", str(picture), capsys=capsys)
    patch = RUN.manifests[5].patch
    assert patch is not None
    assert code == 0
    assert (found["num_changed"], found["num_elements"], found["density"]) == (15, 3000, 0.005)
    assert [tensor["num_changed"] for tensor in found["tensors"]] == [5, 5, 5]
    assert found["patch_bytes"] == found["published_patch_bytes"] == patch.content.num_bytes
    assert 0 < found["information_bytes"] < found["patch_bytes"] < found["snapshot_bytes"] == len(RUN.files[5])
    assert picture.read_bytes().startswith(b"\x89PNG")
    _, two, _ = weights("diff", f"{pool}@3", "@5", "--tensors", capsys=capsys)
    assert "of 3,000 elements" in two
    assert "published" not in two  # no patch leads there in one step


def test_diff_compares_model_folders_and_says_what_is_not_in_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, tensors in (
        ("a", {"w": np.zeros(10, np.float32), "old": np.zeros(1, np.float32), "cast": np.zeros(4, np.float32)}),
        ("b", {"w": np.ones(10, np.float32), "new": np.zeros(1, np.float32), "cast": np.zeros(4, np.float16)}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / WEIGHTS).write_bytes(save(tensors))
    code, found = weights_json("diff", "a", "b", capsys=capsys)
    assert code == 0
    assert (found["only_old"], found["only_new"]) == (["old"], ["new"])
    assert found["recast"] == {"cast": "F32 [4] -> F16 [4]"}
    assert (found["num_changed"], found["patch_bytes"]) == (10, None)
    _, out, _ = weights("diff", "a", "b", capsys=capsys)
    assert "patch        there is none" in out
    assert "only in the old: old" in out


def test_a_version_with_lost_chunks_cannot_be_compared_and_the_sentence_says_where_to_look(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(pool, tmp_path / "broken")
    shutil.rmtree(broken / "store" / "chunks")
    code, _, err = weights("diff", f"{broken}@4", "@5", capsys=capsys)
    assert code == 2
    assert "is not whole: version 3, config.json, chunk 0, bytes 0 to 2: missing" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["inspect", "nowhere"], "nowhere is no run folder with a coordinator, no manifest (.json) and has no"),
        (["inspect", "model@3"], "model has no versions: @3 fits a run folder with a coordinator, or a URL"),
        (["inspect", "model", "--save", "m"], "model has no manifest to --save: nobody signed it"),
        (["inspect", "POOL@17"], "has no version 17: it keeps 0, 1, 2, 3, 4, 5"),
        (["inspect", "POOL", "--save", "model"], "model exists: choose another place for --save, or remove it"),
        (["inspect", "junk.json"], "junk.json is no manifest of a version: malformed_record"),
        (["inspect", "junk.safetensors"], "junk.safetensors cannot be read: safetensors: a header of"),
        (["inspect", "empty.safetensors"], "empty.safetensors is empty"),
        (["inspect", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be asked: "),
        (["verify", "model"], "model has no manifest: give a run folder, a URL or a manifest file"),
        (["diff", "model", "junk.safetensors"], "they cannot be compared: safetensors: a header of"),
        (["diff", "model", "@3"], "model has no versions: @3 fits"),
        (["diff", "model", "model", "--picture", "p.gif"], "--picture is p.gif: its name must end with .png"),
        (["diff", "model"], "missing: NEW; `farflung weights diff --help` explains"),
        (["weigh"], "invalid choice: 'weigh'"),
    ],
)
def test_wrong_input_is_one_sentence(
    words: list[str], sentence: str, pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / WEIGHTS).write_bytes(RUN.files[0])
    (tmp_path / "junk.json").write_bytes(b'{"a": 1}')
    (tmp_path / "junk.safetensors").write_bytes(b"\xff" * 64)
    (tmp_path / "empty.safetensors").write_bytes(b"")
    code, out, err = weights(*(word.replace("POOL", str(pool)) for word in words), capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
