"""What a version costs on the wire: real GRPO steps on SmolLM2-135M and on the tiny model, at three learning rates.

patches/<model>-<lr>       bytes of the patch for the last of a few versions; the peer is the snapshot. In the details:
                           density (share of elements that changed) per version, bytes over the information in it
                           (positions plus moves), and two plain codecs on the same pair of versions: delta-coded
                           positions with new values under zstd-1, and the xor of both files split by byte under zstd-1
patches/build, apply       MB of weights per CPU-second; the peer is the split xor under zstd-1 (and back)
patches/swap               CPU-seconds to bring a loaded engine to the next version; the peer is a load of all of it

Prompts, completions and the signs of advantages are random: at these rates the density follows from the learning rate,
since Adam moves every weight by about the same, and hardly from what is learned.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure import cpu_time
from benchmarks.record import record
from benchmarks.smollm2 import smollm2
from farflung.envs.registry import load_environment
from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.weights import from_safetensors_bytes, load_hf_state, views_of_safetensors
from farflung.model.weights_update import update_hf_state
from farflung.rl.batch import flatten
from farflung.rl.types import TrainingSample
from farflung.sharding.file_layout import read_layout
from farflung.sharding.moves import moves_between
from farflung.sharding.patch_apply import apply_patch
from farflung.sharding.patch_build import build_patch
from farflung.trainer.config import ModelSourceConfig, ObjectiveConfig, OptimizerConfig
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.model_source import describe
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, train_step
from farflung.wire.canonical import sha256_hex

RATES = (1e-6, 3e-6, 1e-5)
NUM_VERSIONS = 4
NUM_SAMPLES, NUM_PROMPT, NUM_COMPLETION = 8, 16, 16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Model:
    name: str
    config: AnyConfig
    state: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Versions:
    """The last two versions of a few, and how many elements changed at each."""

    old: bytes
    new: bytes
    densities: list[float]


def run() -> None:
    torch.set_num_threads(1)
    loaded = smollm2()
    tiny = describe(ModelSourceConfig(), load_environment("sort-digits", 0, {})).config
    assert isinstance(tiny, ModelConfig)
    for model in (
        Model(name="tiny", config=tiny, state=random_state(tiny, 0, 0.02)),
        Model(name="smollm2", config=loaded.config, state=loaded.state),
    ):
        for rate in RATES:
            versions = trained(model, rate)
            _tell_size(f"patches/{model.name}-{rate:.0e}", versions)
            if rate == RATES[0]:
                slowest = versions
    _tell_speed(slowest)
    _tell_swap(loaded.config, slowest)


def trained(model: Model, rate: float) -> Versions:
    """A few versions of one optimizer step each."""
    policy = Policy(model.config, model.state, OptimizerConfig())
    params = StepParams(
        objective=make_objective(ObjectiveConfig(weight_mode="clip"), max_length_tokens=NUM_COMPLETION),
        temperature=1.0,
        reserved_token_ids=(),
        micro_batch_tokens=1 << 20,
        max_grad_norm=1.0,
    )
    rng = np.random.default_rng(0)
    old, new = b"", policy.weights_file().data
    densities = []
    for _ in range(NUM_VERSIONS):
        old = new
        train_step(policy, samples(policy, rng), params, rate)
        new = policy.weights_file().data
        densities.append(float((_elements(old) != _elements(new)).mean()))
    return Versions(old=old, new=new, densities=densities)


def samples(policy: Policy, rng: np.random.Generator) -> list[TrainingSample]:
    """Random tokens, good and bad in turn, as the policy of now would have sampled them."""
    length = NUM_PROMPT + NUM_COMPLETION
    tokens = [rng.integers(3, policy.config.vocab_size, length).astype(np.int32) for _ in range(NUM_SAMPLES)]
    blank = [_sample(each, number, np.zeros(NUM_COMPLETION)) for number, each in enumerate(tokens)]
    with torch.no_grad():
        logprobs_M, _ = batch_logprobs(policy.published, flatten(blank))
    logprobs_ST = logprobs_M.float().numpy().reshape(NUM_SAMPLES, NUM_COMPLETION)
    return [_sample(each, number, logprobs_ST[number]) for number, each in enumerate(tokens)]


def _sample(tokens: NDArray[np.int32], number: int, logprobs_T: NDArray[Any]) -> TrainingSample:
    return TrainingSample(
        tokens=tokens,
        num_prompt_tokens=NUM_PROMPT,
        behaviour_logprobs=logprobs_T.astype(np.float32),
        advantages=np.full(NUM_COMPLETION, 1.0 if number % 2 else -1.0, dtype=np.float32),
        loss_mask=np.ones(NUM_COMPLETION, dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=number // 4,
        sample=number % 4,
    )


def information_bytes(old: bytes, new: bytes) -> float:
    """Positions of the changed elements, tensor by tensor, and the entropy of how far they moved."""
    bits, moves = 0.0, []
    for span in read_layout(old):
        before, after = (np.frombuffer(data, np.uint16, span.num_elements, span.start) for data in (old, new))
        is_changed = before != after
        share = float(is_changed.mean())
        bits += span.num_elements * _entropy(np.array([share, 1 - share]))
        moves.append(moves_between(before[is_changed], after[is_changed]))
    _, counts = np.unique(np.concatenate(moves), return_counts=True)
    return (bits + counts.sum() * _entropy(counts / counts.sum())) / 8


def sparse_zstd_bytes(old: bytes, new: bytes) -> int:
    """Delta-coded positions (u32) and new values (u16), each under zstd-1."""
    before, after = _elements(old), _elements(new)
    positions = np.flatnonzero(before != after)
    return len(_zstd(np.diff(positions, prepend=-1).astype(np.uint32).tobytes())) + len(
        _zstd(after[positions].tobytes())
    )


def xor_zstd(old: bytes, new: bytes) -> bytes:
    """Low bytes of new xor old, then high bytes, under zstd-1."""
    planes = (_elements(old) ^ _elements(new)).view(np.uint8).reshape(-1, 2).T
    return _zstd(np.ascontiguousarray(planes).tobytes())


def _xor_unzstd(old: bytes, packed: bytes) -> bytes:
    planes = np.frombuffer(pa.Codec("zstd").decompress(packed, len(_elements(old)) * 2, asbytes=True), np.uint8)
    new: bytes = (_elements(old) ^ np.ascontiguousarray(planes.reshape(2, -1).T).view(np.uint16)[:, 0]).tobytes()
    return new


def _elements(data: bytes) -> NDArray[np.uint16]:
    """All weights of a bf16 file as bits."""
    start = 8 + int.from_bytes(data[:8], "little")
    return np.frombuffer(data, np.uint16, offset=start)


def _entropy(shares: NDArray[np.float64]) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log2(positive)).sum())


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
    return packed


def _tell_size(name: str, versions: Versions) -> None:
    old, new = versions.old, versions.new
    patch = build_patch(old, new)
    assert patch is not None
    changed = bytearray(old)
    apply_patch(changed, patch, base_sha256=sha256_hex(old))
    assert changed == new
    detail = {
        "times smaller": round(len(new) / len(patch), 1),
        "densities": [f"{density:.3%}" for density in versions.densities],
        "of the information": round(float(len(patch) / information_bytes(old, new)), 3),
        "positions and values, zstd-1": sparse_zstd_bytes(old, new),
        "split xor, zstd-1": len(xor_zstd(old, new)),
    }
    entry = record(name, len(patch), len(new), "snapshot", "bytes", detail)
    print(f"{name}: {len(patch)} bytes, 1/{len(new) / len(patch):.1f} of a snapshot; {entry['detail']}")


def _tell_speed(versions: Versions) -> None:
    old, new = versions.old, versions.new
    megabytes, old_sha256 = len(new) / 1e6, sha256_hex(old)
    patch, packed = build_patch(old, new), xor_zstd(old, new)
    assert patch is not None
    build_s, xor_s = _least(lambda: build_patch(old, new)), _least(lambda: xor_zstd(old, new))
    apply_s = _least(lambda: apply_patch(bytearray(old), patch, base_sha256=old_sha256))
    unxor_s = _least(lambda: sha256_hex(_xor_unzstd(old, packed)))
    for name, ours_s, peer_s in (("patches/build", build_s, xor_s), ("patches/apply", apply_s, unxor_s)):
        record(name, megabytes / ours_s, megabytes / peer_s, "split xor, zstd-1", "MB/CPU-s", {"lr": RATES[0]})
        print(f"{name}: {megabytes / ours_s:.0f} MB/CPU-s, split xor under zstd-1 {megabytes / peer_s:.0f}")


def _tell_swap(config: AnyConfig, versions: Versions) -> None:
    """With and without matrices in the processor's own order, which have no elements that can be written."""
    old, new = bytearray(versions.old), bytearray(versions.new)
    patch = build_patch(versions.old, versions.new)
    assert patch is not None
    changes = apply_patch(bytearray(old), patch, base_sha256=sha256_hex(versions.old))
    changed = {change.span.name: change.indices for change in changes}
    for name, is_packed in (("patches/swap", False), ("patches/swap-packed", True)):
        decoder = build_decoder(config).requires_grad_(False)
        if isinstance(decoder, Decoder):
            decoder.packs_weights = is_packed
        load_hf_state(decoder, views_of_safetensors(old))
        load_s = _least(partial(_load_all, decoder, versions.new))
        swap_s = _least(partial(update_hf_state, decoder, views_of_safetensors(new), changed))
        record(name, swap_s, load_s, "load of all", "CPU-s", {"lr": RATES[0], "density": versions.densities[-1]})
        print(f"{name}: {swap_s:.3f} CPU-s, load of all {load_s:.3f}")


def _load_all(decoder: AnyDecoder, data: bytes) -> None:
    load_hf_state(decoder, from_safetensors_bytes(data, len(data)))


def _least(function: Callable[[], Any]) -> float:
    return min(cpu_time(function) for _ in range(2))
