"""What proofs cost: building and checking commitments beside the `toploc` library, and their share of real work.

    FARFLUNG_BENCH_TOPLOC=VENV FARFLUNG_BENCH_SMOLLM2=MODEL python -m benchmarks.proofs [commitments] [smollm2]

VENV is a virtual environment with `toploc` built from its source package (its wheel does not load with this torch) and
this one's packages on its path; the peer runs in a child there, alternating with ours. CPU time counts, since the
machine may be shared; all threads of the peer are counted. MODEL is a folder with SmolLM2-135M-Instruct.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.record import record
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.batch_layout import predicting_states
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.folder import load_folder
from farflung.model.head import token_logprobs
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.model.weights import load_hf_state
from farflung.proofs import sketch, toploc
from farflung.proofs.commitments import Commitments
from farflung.proofs.shape import num_chunks, proof_bytes
from farflung.rl.batch import flatten
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.validator.calibrate import SEED, Bench
from farflung.validator.prefill import Claim, PrefillParams, figures_of
from farflung.wire.proof import Scheme
from farflung.wire.rollout import Rollout

NUM_CHUNKS, ROUNDS = 32, 15
SCHEMES: tuple[Scheme, ...] = ("toploc", "sketch")
WIDTHS = (576, 2048, 5120)
PEER = """
import json, sys, time, torch
from toploc import build_proofs_bytes, verify_proofs_bytes
torch.set_num_threads(1)
for line in sys.stdin:
    ask = json.loads(line)
    h = torch.randn(ask["rows"], ask["width"], generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    rows = [h[i : i + 1] for i in range(len(h))]
    s = time.process_time(); proofs = build_proofs_bytes(rows, 32, 128, True); build = time.process_time() - s
    s = time.process_time(); found = verify_proofs_bytes(h, proofs, 32, 128, True); verify = time.process_time() - s
    print(json.dumps({"build": build, "verify": verify, "proof": b"".join(proofs).hex(),
                      "exact": all(f.exp_mismatches == 0 and f.mant_err_mean == 0 for f in found)}), flush=True)
"""


def cpu_s(call: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.process_time()
    result = call()
    return time.process_time() - started_s, result


def commitments() -> None:
    """Microseconds of CPU per chunk of 32 tokens."""
    python = Path(os.environ["FARFLUNG_BENCH_TOPLOC"], "bin", "python")
    with subprocess.Popen([str(python), "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for width in WIDTHS:
            times: dict[str, list[float]] = {}
            hidden = torch.randn(NUM_CHUNKS * 32, width, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
            is_same = True
            for _ in range(ROUNDS):
                peer.stdin.write(json.dumps({"rows": len(hidden), "width": width}) + "\n")
                peer.stdin.flush()
                told = json.loads(peer.stdout.readline())
                ours = _ours(hidden)
                is_same &= bytes.fromhex(told["proof"]) == ours.pop("proof") and told["exact"]
                for name, value in {**ours, "peer build": told["build"], "peer verify": told["verify"]}.items():
                    times.setdefault(name, []).append(value)
            us = {name: median(values[1:]) / NUM_CHUNKS * 1e6 for name, values in times.items()}
            best = {name: min(values[1:]) / NUM_CHUNKS * 1e6 for name, values in times.items()}
            for scheme in SCHEMES:
                for what in ("build", "verify"):
                    # The peer's speed is in chunks, so that the ratio says how many times as fast ours is.
                    record(
                        f"proofs/{scheme}/{what}/width-{width}",
                        1e6 / us[f"{scheme} {what}"],
                        1e6 / us[f"peer {what}"],
                        "toploc 0.1.6, built from source",
                        "chunks/CPU-s",
                        {
                            "chunks": NUM_CHUNKS,
                            "proofs equal byte for byte": is_same,
                            "rounds": ROUNDS,
                            "us per chunk, best round": f"{best[f'{scheme} {what}']:.0f}, "
                            f"peer {best[f'peer {what}']:.0f}",
                        },
                    )
        peer.stdin.close()
    for scheme in SCHEMES:
        record(
            f"proofs/{scheme}/bytes-per-token",
            proof_bytes(scheme, 32) / 32,
            len(bytes.fromhex(told["proof"])) / len(hidden),
            "toploc 0.1.6, built from source",
            "B",
        )


def _ours(hidden: Tensor) -> dict[str, Any]:
    build_s, proof = cpu_s(lambda: toploc.build(hidden))
    verify_s, _ = cpu_s(lambda: toploc.check(proof, hidden))
    sketch_s, made = cpu_s(lambda: sketch.build(hidden, SEED, 0, 0))
    keys = torch.from_numpy(sketch.chunk_keys(SEED, 0, 0, num_chunks(len(hidden))))
    compare_s, _ = cpu_s(lambda: sketch.distances(made, sketch.sketch(hidden, keys)))
    return {
        "toploc build": build_s, "toploc verify": verify_s, "sketch build": sketch_s, "sketch verify": compare_s,
        "proof": proof,
    }  # fmt: skip


def smollm2() -> None:
    """What building adds to generating, and what a full check costs beside a plain packed forward pass."""
    loaded = load_folder(Path(os.environ["FARFLUNG_BENCH_SMOLLM2"]))
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    reserved = never_drawn(tokenizer, loaded.config)
    params = SamplingParams(
        max_completion_tokens=64, eos_token_ids=end_of_sequence(tokenizer, loaded.config), reserved_token_ids=reserved
    )
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
        for text in ("Tell me about the sea.", "Write a short poem about rain.")
    ]
    _generation(loaded, prompts, params)
    bench = Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=8)
    decoder = build_decoder(loaded.config).requires_grad_(False)
    load_hf_state(decoder, loaded.state)
    _check(decoder, bench.sample(), reserved)


def _generation(loaded: Any, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
    engine = TorchEngine(loaded.config, max_batch_rows=16)
    engine.load_weights(loaded.state, 0)
    requests = [
        GroupRequest(group=group, prompt_tokens=np.array(prompt, np.int32), num_samples=8)
        for group, prompt in enumerate(prompts)
    ]
    plain, proven, built = [], [], []
    held = 0
    for _ in range(ROUNDS):
        spent_s, made = cpu_s(lambda: engine.generate(requests, params, SEED))
        plain.append(spent_s)
        sink = _Timed("sketch", SEED)
        spent_s, _ = cpu_s(partial(_proven, engine, requests, params, sink))
        proven.append(spent_s)
        built.append(sink.spent_s)
        held = max(held, sink.most_waiting)
    num_tokens = sum(len(each.tokens) for each in made)
    record(
        "proofs/smollm2/generation-with-proof",
        median(proven[1:]),
        median(plain[1:]),
        "the same without proofs",
        "CPU-s",
        {
            "building alone, share of generation": f"{median(built[1:]) / median(plain[1:]):.5f}",
            "rollouts": 16, "tokens": num_tokens, "rounds": ROUNDS,
            "states held at most, beside 64 steps of all rows": f"{held} of {num_tokens}",
        },
    )  # fmt: skip


class _Timed(Commitments):
    """Commitments that know what they cost."""

    def __init__(self, scheme: Scheme, draw_seed: bytes) -> None:
        super().__init__(scheme, draw_seed)
        self.spent_s, self.most_waiting = 0.0, 0

    def add(self, group: int, sample: int, states_TD: Tensor) -> None:
        self.spent_s += cpu_s(lambda: super(_Timed, self).add(group, sample, states_TD))[0]
        self.most_waiting = max(self.most_waiting, self.num_waiting)

    def proof(self, group: int, sample: int) -> bytes:
        spent_s, proof = cpu_s(lambda: super(_Timed, self).proof(group, sample))
        self.spent_s += spent_s
        return bytes(proof)


def _proven(
    engine: TorchEngine, requests: Sequence[GroupRequest], params: SamplingParams, sink: Commitments
) -> list[bytes]:
    made = engine.generate(requests, params, SEED, sink=sink)
    return [sink.proof(each.group, each.sample) for each in made]


def _check(decoder: AnyDecoder, rows: Sequence[Rollout], reserved: tuple[int, ...]) -> None:
    claims = [Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=SEED, slot=0) for row in rows]
    params = PrefillParams(temperature=1.0, reserved_token_ids=reserved)
    samples = [_sample(number, row) for number, row in enumerate(rows)]

    @torch.no_grad()
    def plain() -> None:
        for part in split_micro_batches(samples, params.micro_batch_tokens):
            batch = flatten(part)
            token_logprobs(
                predicting_states(decoder, batch), decoder.lm_head_weight, batch.targets_M, reserved_token_ids=reserved
            )

    full_s, plain_s = [], []
    for _ in range(7):
        plain_s.append(cpu_s(plain)[0])
        full_s.append(cpu_s(lambda: figures_of(decoder, claims, params))[0])
    record(
        "proofs/smollm2/full-check",
        median(full_s[1:]),
        median(plain_s[1:]),
        "a packed forward pass with logprobs and entropy",
        "CPU-s",
        {"rollouts": len(rows), "tokens": sum(len(row.completion_tokens) for row in rows), "rounds": 7},
    )


def _sample(number: int, row: Rollout) -> TrainingSample:
    nothing = np.zeros(len(row.completion_tokens), dtype=np.float32)
    return TrainingSample(
        tokens=np.concatenate((row.prompt_tokens, row.completion_tokens)),
        num_prompt_tokens=len(row.prompt_tokens),
        behaviour_logprobs=nothing,
        advantages=nothing,
        loss_mask=np.ones(len(nothing), dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=row.group,
        sample=number,
    )


def main() -> None:
    torch.set_num_threads(1)
    parts = {"commitments": commitments, "smollm2": smollm2}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
