"""How often honest work is rejected and how often cheats pass, by direct count.

    FARFLUNG_BENCH_TINY=MODEL python -m benchmarks.verification tiny [NUM_SUBMISSIONS]
    FARFLUNG_BENCH_SMOLLM2=MODEL python -m benchmarks.verification smollm2 [NUM_SUBMISSIONS]

The first MODEL is a folder of a policy for sort-digits, such as `runs/demo/model`. Every submission is 8 rollouts of
one prompt, sampled by the engine and examined by a verifier's prefill as in a pool. Cheats are the impostors of
`farflung calibrate`. Two sets of thresholds: the shipped ones, for honest work whose verifier may round activations to
bfloat16 (every eighth block of honest work is examined so), and those of a pool whose machines all compute in float32.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from farflung.cli.calibrate import PROMPTS
from farflung.engine.base import SamplingParams
from farflung.envs.registry import load_environment
from farflung.model.folder import LoadedModel, load_folder
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.proofs.calibration import extrapolated_tail, rate_upper_bound, wilson_interval
from farflung.validation.proof_checks import proof_problem, submission_distance
from farflung.validator.calibrate import FLOORS, Bench
from farflung.wire.proof import DEFAULT_RULES, RolloutFigures, Thresholds
from farflung.wire.task import Message

ROUNDED_EVERY = 8
BATCH_ROWS = (64, 7, 256)
RULES = {"shipped": DEFAULT_RULES.reject, "float32": FLOORS}
Block = Callable[[int], Bench]
"""Number of a block -> its submissions."""


def _params(loaded: LoadedModel, max_tokens: int) -> SamplingParams:
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    return SamplingParams(
        max_completion_tokens=max_tokens,
        eos_token_ids=end_of_sequence(tokenizer, loaded.config),
        reserved_token_ids=never_drawn(tokenizer, loaded.config),
    )


def tiny(num_submissions: int = 30_000) -> None:
    loaded = load_folder(Path(os.environ["FARFLUNG_BENCH_TINY"]))
    tokenizer, environment = Tokenizer.from_files(loaded.tokenizer_files), load_environment("sort-digits", 0, {})
    size, params = 250, _params(loaded, 8)

    def block(number: int) -> Bench:
        tasks = [environment.task("train", index) for index in range(number * size, (number + 1) * size)]
        prompts = [tokenizer.encode_chat(task.messages) for task in tasks]
        return Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=8)

    _honest("tiny", block, -(-num_submissions // size))
    _cheats("tiny", block(1000))


def smollm2(num_submissions: int = 32) -> None:
    loaded = load_folder(Path(os.environ["FARFLUNG_BENCH_SMOLLM2"]))
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    size, params = 4, _params(loaded, 64)

    def block(number: int) -> Bench:
        asked = [f"{PROMPTS[(size * number + at) % len(PROMPTS)]} ({number})" for at in range(size)]
        prompts = [tokenizer.encode_chat([Message(role="user", content=text)]) for text in asked]
        return Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=8)

    _honest("smollm2", block, -(-num_submissions // size))
    _cheats("smollm2", block(1000))


def _honest(model: str, block: Block, num_blocks: int) -> None:
    started_s = time.process_time()
    found: dict[str, list[tuple[RolloutFigures, ...]]] = {name: [] for name in RULES}
    for number in range(num_blocks):
        bench = block(number)
        rows = bench.sample(max_batch_rows=BATCH_ROWS[number % len(BATCH_ROWS)])
        alike = bench.examined(rows)
        found["float32"] += alike
        found["shipped"] += bench.examined(rows, rounded=True) if number % ROUNDED_EVERY == 0 else alike
    spent_s = time.process_time() - started_s
    for name, submissions in found.items():
        rejected = sum(proof_problem(each, RULES[name]) is not None for each in submissions)
        detail = {"rejected": rejected, "submissions": len(submissions), "rollouts each": 8, "CPU-s": f"{spent_s:.0f}"}
        if name == "shipped":
            detail["examined with bfloat16 activations"] = f"1 block in {ROUNDED_EVERY}"
        tail = extrapolated_tail([submission_distance(each) for each in submissions], RULES[name].activation_submission)
        if tail is not None:
            detail["distance beyond its threshold, by an exponential tail (extrapolated)"] = f"{tail:.1e}"
        bound = rate_upper_bound(rejected, len(submissions))
        record(f"verification/{model}/{name}/honest-rejected", bound, None, None, "95 % upper bound", detail)


def _cheats(model: str, bench: Bench) -> None:
    for spread in bench.spreads():
        if not spread.is_honest:
            for name, limits in RULES.items():
                _record_caught(f"verification/{model}/{name}/caught/{spread.name}", spread.submissions, limits)


def _record_caught(name: str, submissions: Sequence[Sequence[RolloutFigures]], limits: Thresholds) -> None:
    caught = sum(proof_problem(each, limits) is not None for each in submissions)
    low, high = wilson_interval(caught, len(submissions))
    detail: dict[str, Any] = {"caught": caught, "submissions": len(submissions)}
    detail["95 % interval"] = f"{low:.4f} to {high:.4f}"
    record(name, caught / len(submissions), None, None, "share of submissions", detail)


def main() -> None:
    torch.set_num_threads(1)
    parts: dict[str, Callable[..., None]] = {"tiny": tiny, "smollm2": smollm2}
    name, *count = sys.argv[1:] or ["tiny"]
    parts[name](*map(int, count))


if __name__ == "__main__":
    main()
