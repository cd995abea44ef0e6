"""Quantised GGUF files, against the formats' definitions written out here."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from farflung.cli import main
from farflung.errors import UserError
from farflung.model.folder import load_folder
from farflung.model.gguf import load_gguf, metadata_template

gguf = pytest.importorskip("gguf")
pytest.importorskip("transformers")

SUPER = 256
"""Weights of a block."""
HIDDEN, MIDDLE, HEADS, VOCABULARY = 256, 512, 4, 320
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def q4_k(block: Bytes) -> Floats:
    """144 bytes: two halves d and m, eight 6-bit scales and eight 6-bit minima, 256 4-bit numbers."""
    d, m = block[:4].view(np.float16).astype(np.float32)
    packed = block[4:16].astype(int)
    scales, minima = [], []
    for j in range(8):
        if j < 4:
            scales.append(packed[j] & 63)
            minima.append(packed[j + 4] & 63)
        else:
            scales.append((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4)
            minima.append((packed[j + 4] >> 4) | (packed[j] >> 6) << 4)
    out = []
    for j in range(8):
        run = block[16 + 32 * (j // 2) :][:32]
        number = run & 15 if j % 2 == 0 else run >> 4
        out.append(d * scales[j] * number.astype(np.float32) - m * minima[j])
    return np.concatenate(out).astype(np.float32)


def q6_k(block: Bytes) -> Floats:
    """210 bytes: low 4 bits, high 2 bits, sixteen signed scales and a half d; numbers are 6 bits less 32."""
    low, high = block[:128].astype(int), block[128:192].astype(int)
    scales, d = block[192:208].view(np.int8).astype(np.float32), block[208:210].view(np.float16).astype(np.float32)[0]
    out = np.empty(SUPER, dtype=np.float32)
    for index in range(SUPER):
        half, place = divmod(index, 128)
        quarter, lane = divmod(place, 32)
        nibble = low[64 * half + lane + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
        number = nibble | (high[32 * half + lane] >> (2 * quarter) & 3) << 4
        out[index] = d * scales[index // 16] * (number - 32)
    return out


def _blocks(rows: int, columns: int, num_bytes: int, halves: tuple[int, ...], rng: np.random.Generator) -> Bytes:
    """Random blocks with small numbers where halves lie."""
    data = rng.integers(0, 256, (rows, columns // SUPER, num_bytes), dtype=np.uint8)
    for offset in halves:
        half = rng.uniform(1e-5, 1e-4, data.shape[:2]).astype(np.float16)
        data[..., offset : offset + 2] = half[..., None].view(np.uint8)
    return data.reshape(rows, -1)


def _dequantised(data: Bytes, num_bytes: int, block: Callable[[Bytes], Floats]) -> torch.Tensor:
    rows = [np.concatenate([block(part) for part in row.reshape(-1, num_bytes)]) for row in data]
    return torch.from_numpy(np.stack(rows))


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A Gemma-like file as `Q4_K_M` ones are: most matrices Q4_K, the embedding Q6_K, norms in float32."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer, rng = gguf.GGUFWriter(path, "gemma3"), np.random.default_rng(0)
    expected: dict[str, torch.Tensor] = {}
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HIDDEN // HEADS)
    writer.add_value_length(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(32)
    _add_tokenizer(writer)
    matrices = {
        "token_embd": ("model.embed_tokens", VOCABULARY, HIDDEN), "blk.0.attn_q": ("self_attn.q_proj", HIDDEN, HIDDEN),
        "blk.0.attn_k": ("self_attn.k_proj", HIDDEN, HIDDEN), "blk.0.attn_v": ("self_attn.v_proj", HIDDEN, HIDDEN),
        "blk.0.attn_output": ("self_attn.o_proj", HIDDEN, HIDDEN), "blk.0.ffn_gate": ("mlp.gate_proj", MIDDLE, HIDDEN),
        "blk.0.ffn_up": ("mlp.up_proj", MIDDLE, HIDDEN), "blk.0.ffn_down": ("mlp.down_proj", HIDDEN, MIDDLE),
    }  # fmt: skip
    for theirs, (ours, rows, columns) in matrices.items():
        is_q6 = theirs in ("token_embd", "blk.0.attn_v")
        num_bytes, halves, block = (210, (208,), q6_k) if is_q6 else (144, (0, 2), q4_k)
        data = _blocks(rows, columns, num_bytes, halves, rng)
        kind = gguf.GGMLQuantizationType.Q6_K if is_q6 else gguf.GGMLQuantizationType.Q4_K
        writer.add_tensor(f"{theirs}.weight", data, raw_dtype=kind)
        prefix = "" if ours.startswith("model.") else "model.layers.0."
        expected[f"{prefix}{ours}.weight"] = _dequantised(data, num_bytes, block)
    norms = {
        "attn_norm": HIDDEN, "post_attention_norm": HIDDEN, "ffn_norm": HIDDEN, "post_ffw_norm": HIDDEN,
        "attn_q_norm": HIDDEN // HEADS, "attn_k_norm": HIDDEN // HEADS,
    }  # fmt: skip
    for name, size in norms.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.full(size, 1.5, dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.full(HIDDEN, 1.25, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, expected


def _add_tokenizer(writer: "gguf.GGUFWriter") -> None:
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    plain = [chr(0x4E00 + index) for index in range(VOCABULARY - 260)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *bytes_, *plain])
    writer.add_token_scores([0.0] * 260 + [-float(index) for index in range(len(plain))])
    writer.add_token_types([3] * 4 + [6] * 256 + [1] * len(plain))
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_chat_template(TEMPLATE)


def test_every_weight_is_what_its_block_says(quantised: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, expected = quantised
    model = load_gguf(path)
    for name, tensor in expected.items():
        torch.testing.assert_close(model.state[name], tensor, rtol=1e-6, atol=1e-9)
    assert float(model.state["model.norm.weight"][0]) == 0.25  # Gemma's files hold what is multiplied by, 1 + weight
    assert model.config.tie_word_embeddings


def test_an_import_keeps_the_template_of_the_metadata(
    quantised: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    path, expected = quantised
    assert metadata_template(path) == TEMPLATE
    assert main.main(["model", "import", str(path), str(tmp_path / "out"), "--dtype", "float32"]) == 0
    loaded = load_folder(tmp_path / "out")
    name = "model.layers.0.mlp.down_proj.weight"
    torch.testing.assert_close(loaded.state[name], expected[name], rtol=1e-6, atol=1e-9)


def test_another_template_than_that_of_the_metadata_is_refused(
    quantised: tuple[Path, dict[str, torch.Tensor]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("farflung.model.gguf.metadata_template", lambda path: TEMPLATE + "!")
    command = ["model", "import", str(quantised[0]), str(tmp_path / "out")]
    assert main.main(command) == 2
    assert "the chat template in small.gguf is not that in" in capsys.readouterr().err
    (tmp_path / "mine").write_text(TEMPLATE)
    assert main.main([*command, "--template", str(tmp_path / "mine")]) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"GGUF",
        b"GGUF" + (3).to_bytes(4, "little") + bytes(16),
        b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1 << 60).to_bytes(8, "little"),
        b"GGUF" + (3).to_bytes(4, "little") + (1 << 40).to_bytes(8, "little") + bytes(8),
        b"GGUF" + b"\xff" * 300,
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(UserError, match=r"m\.gguf"):
        load_gguf(tmp_path / "m.gguf")
