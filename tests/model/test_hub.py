"""Models of a hub, from a small one of our own on this machine."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch

from farflung.errors import UserError
from farflung.model import hub
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.hub import fetch, is_hub_id

pytest.importorskip("huggingface_hub")

COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """One repository, `someone/tiny`, whose only branch is `main`."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.sizes: dict[str, int] = {}
        """What it claims, where that is not the truth."""
        self.fetched: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *arguments: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        files = self.server.files
        if path in ("/api/models/someone/tiny", "/api/models/someone/tiny/revision/main"):
            siblings = [
                {"rfilename": name, "size": self.server.sizes.get(name, len(data)), "blobId": "0"}
                for name, data in files.items()
            ]
            info = {
                "id": "someone/tiny",
                "sha": COMMIT,
                "private": False,
                "tags": [],
                "siblings": siblings,
                "downloads": 0,
                "cardData": {"license": "apache-2.0"},
            }
            self._send(json.dumps(info).encode(), {"Content-Type": "application/json"}, has_body=has_body)
            return
        name = path.removeprefix(f"/someone/tiny/resolve/{COMMIT}/")
        if name not in files:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if has_body:
            self.server.fetched.append(name)
        etag = hashlib.sha256(files[name]).hexdigest()
        self._send(files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, has_body=has_body)

    def _send(self, data: bytes, headers: dict[str, str], *, has_body: bool) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(data)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Hub]:
    tokenizer = character_tokenizer("0123>")
    config = tiny_config(tokenizer, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=1)
    save_folder(tmp_path / "m", config, random_state(config, 0), tokenizer.files, dtype=torch.float32)
    files = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    served = Hub({**files, "README.md": b"hello", "onnx/model.safetensors": b"other", "pytorch_model.bin": b"pickle"})
    thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


def _fetch(server: Hub, tmp_path: Path, source: str = "someone/tiny") -> hub.HubModel:
    return fetch(source, endpoint=server.endpoint, cache=tmp_path / "cache")


def test_a_model_is_fetched_at_its_commit_without_anything_else(server: Hub, tmp_path: Path) -> None:
    model = _fetch(server, tmp_path, "someone/tiny@main")
    assert (model.commit, model.licence) == (COMMIT, "apache-2.0")
    assert not {"README.md", "onnx/model.safetensors", "pytorch_model.bin"} & set(server.fetched)
    expected = load_folder(tmp_path / "m").state
    assert all(torch.equal(tensor, expected[name]) for name, tensor in load_folder(model.folder).state.items())


def test_a_repository_with_programs_is_refused_before_anything_is_fetched(server: Hub, tmp_path: Path) -> None:
    server.files["modeling_tiny.py"] = b"raise SystemExit"
    with pytest.raises(UserError, match=r"modeling_tiny\.py"):
        _fetch(server, tmp_path)
    assert server.fetched == []


def test_a_configuration_that_names_code_elsewhere_is_refused_before_the_weights(server: Hub, tmp_path: Path) -> None:
    table = json.loads(server.files["config.json"]) | {"auto_map": {"AutoModelForCausalLM": "other/repo--m.Model"}}
    server.files["config.json"] = json.dumps(table).encode()
    with pytest.raises(UserError, match="auto_map"):
        _fetch(server, tmp_path)
    assert server.fetched == ["config.json"]


def test_pickles_alone_are_refused(server: Hub, tmp_path: Path) -> None:
    del server.files["model.safetensors"], server.files["onnx/model.safetensors"]
    with pytest.raises(UserError, match=r"only as pickles \(pytorch_model\.bin\)"):
        _fetch(server, tmp_path)


@pytest.mark.parametrize(("name", "most"), [("tokenizer.json", 64 << 20), ("model.safetensors", 2 << 40)])
def test_files_beyond_reason_are_not_fetched(name: str, most: int, server: Hub, tmp_path: Path) -> None:
    server.sizes[name] = most + 1
    with pytest.raises(UserError, match=f"at most {most}"):
        _fetch(server, tmp_path)
    assert server.fetched == []


@pytest.mark.parametrize("source", ["someone/other", "someone/tiny@absent"])
def test_what_the_hub_does_not_have_is_said(source: str, server: Hub, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be fetched"):
        _fetch(server, tmp_path, source)


def test_a_hub_that_is_not_there_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set HF_ENDPOINT to a hub that this machine reaches"):
        fetch("someone/tiny", endpoint="http://127.0.0.1:9", cache=tmp_path)


def test_names_of_a_hub_are_told_from_paths() -> None:
    assert is_hub_id("org/name-1.5_b")
    assert is_hub_id("org/name@refs/pr/1")
    assert not any(map(is_hub_id, ("name", "./org/name", "../name", "a/b/c", "org/name@", "org/..", "a b/c")))


def test_the_command_asks_the_hub_that_the_environment_names(server: Hub, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "farflung.cli.main", "model", "import", "someone/tiny", str(tmp_path / "out")],
        env={"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"someone/tiny is at {COMMIT}; licence of the weights: apache-2.0" in done.stdout
    assert load_folder(tmp_path / "out").state["model.norm.weight"].dtype == torch.bfloat16
