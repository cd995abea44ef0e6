"""How often honest work is rejected and how often cheats pass, by direct count.

    FARFLUNG_BENCH_TINY=MODEL python -m benchmarks.verification tiny [NUM_SUBMISSIONS]
    FARFLUNG_BENCH_SMOLLM2=MODEL python -m benchmarks.verification smollm2 [NUM_SUBMISSIONS]

The first MODEL is a folder of a policy for sort-digits, such as `runs/demo/model`. Every submission is 8 rollouts of
one prompt, sampled by the engine and examined by a verifier's prefill as in a pool. Honest work takes turns in
`benchmarks.honest_variation`, cheats are the impostors of `farflung calibrate`. Three sets of rules:

    shipped      the default, for honest work whose verifier may round activations to bfloat16
    float32      a pool whose machines all compute in float32
    toploc       commitments in the published format, judged by the published thresholds alone
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import older_versions
from benchmarks.honest_variation import VARIATIONS, Rows, Submissions
from benchmarks.record import record
from benchmarks.steering import bits_per_token, gaps_of
from farflung.cli.calibrate import PROMPTS
from farflung.engine.base import Completion, SamplingParams
from farflung.envs.registry import load_environment
from farflung.model.build import build_decoder
from farflung.model.folder import LoadedModel, load_folder
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.model.weights import load_hf_state
from farflung.proofs.calibration import extrapolated_tail, rate_upper_bound, wilson_interval
from farflung.validation.proof_checks import activations, mean_margin, proof_problem, submission_distance
from farflung.validator.calibrate import FLOORS, OTHER_SEED, SEED, Bench
from farflung.validator.impostors import IMPOSTORS
from farflung.wire.proof import DEFAULT_RULES, RolloutFigures, Scheme, Thresholds
from farflung.wire.task import Message

Submission = Sequence[RolloutFigures]
IsRejected = Callable[[Submission], bool]
PUBLISHED = Thresholds(
    activation_chunk=1.0,
    activation_submission=1.0,
    max_margin=1e9,
    mean_margin=1e9,
    max_likeliness=1e9,
    logprob_error=1e9,
)
"""In units of the published thresholds; nothing is said there about draws."""
RULES: Mapping[str, tuple[Scheme, IsRejected]] = {
    "shipped": ("sketch", lambda found: proof_problem(found, DEFAULT_RULES.reject) is not None),
    "float32": ("sketch", lambda found: proof_problem(found, FLOORS) is not None),
    "toploc": ("toploc", lambda found: activations(found, PUBLISHED) is not None),
}
COOLER = (0.9, 0.7)
RATES = {"tiny": (1e-4, 1e-3), "smollm2": (1e-6, 1e-5)}
"""Learning rates of the chains of versions; the smaller ones are usual for such models."""
PUBLISHED_EVERY = {"tiny": 5, "smollm2": 1}
"""Blocks of honest work of which one carries commitments in the published format as well."""
NUM_STEERED = {"tiny": 64, "smollm2": 2}
"""Submissions whose gaps are looked at."""
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
    params = _params(loaded, 8)

    def block(number: int, size: int = 250) -> Bench:
        tasks = [environment.task("train", index) for index in range(number * size, (number + 1) * size)]
        prompts = [tokenizer.encode_chat(task.messages) for task in tasks]
        return Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=8)

    _honest("tiny", block, -(-num_submissions // 250))
    _cheats("tiny", [block(1000)])
    _older("tiny", block(1001))
    _choice("tiny", block(1002))


def smollm2(num_submissions: int = 96) -> None:
    loaded = load_folder(Path(os.environ["FARFLUNG_BENCH_SMOLLM2"]))
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    size, params = 4, _params(loaded, 64)

    def block(number: int) -> Bench:
        asked = [f"{PROMPTS[(size * number + at) % len(PROMPTS)]} ({number})" for at in range(size)]
        prompts = [tokenizer.encode_chat([Message(role="user", content=text)]) for text in asked]
        return Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=8)

    _cheats("smollm2", [block(number) for number in range(1000, 1004)])
    _older("smollm2", block(1004))
    _choice("smollm2", block(1005))
    _honest("smollm2", block, -(-num_submissions // size))


def _examined(
    bench: Bench,
    made: Sequence[Completion],
    examine: Callable[[Bench, Rows], Submissions],
    schemes: Sequence[Scheme] = ("sketch", "toploc"),
) -> dict[str, Submissions]:
    """By scheme: the same completions with either commitment."""
    benches = [bench if scheme == bench.scheme else replace(bench, scheme=scheme) for scheme in schemes]
    return {each.scheme: examine(each, each.rows(made)) for each in benches}


def _honest(model: str, block: Block, num_blocks: int) -> None:
    started_s = time.process_time()
    found: dict[str, dict[str, Submissions]] = {name: {} for name in VARIATIONS}
    for number in range(num_blocks):
        name, variation = list(VARIATIONS.items())[number % len(VARIATIONS)]
        bench = block(number)
        schemes: tuple[Scheme, ...] = ("sketch", "toploc") if number % PUBLISHED_EVERY[model] == 0 else ("sketch",)
        for scheme, submissions in _examined(bench, variation.sample(bench), variation.examine, schemes).items():
            found[name].setdefault(scheme, []).extend(submissions)
    spent_s = time.process_time() - started_s
    for name, by_scheme in found.items():
        if by_scheme:
            _record_variation(f"verification/{model}/honest/{name}", by_scheme)
    for name, (scheme, is_rejected) in RULES.items():
        # Where all machines compute in float32 none rounds.
        kinds = [kind for kind, each in VARIATIONS.items() if not (name == "float32" and each.is_rounded)]
        submissions = [each for kind in kinds for each in found[kind].get(scheme, [])]
        rejected = sum(map(is_rejected, submissions))
        detail = {
            "rejected": rejected,
            "submissions": len(submissions),
            "rollouts each": 8,
            "kinds of machines": len(kinds),
            "CPU-s": f"{spent_s:.0f}",
            **_tail(name, submissions),
        }
        bound = rate_upper_bound(rejected, len(submissions))
        low, high = wilson_interval(rejected, len(submissions))
        detail["Wilson interval, 95 %"] = f"{low:.5f} to {high:.5f}"
        record(f"verification/{model}/{name}/honest-rejected", bound, None, None, "95 % upper bound", detail)


def _tail(rules: str, submissions: Sequence[Submission]) -> dict[str, str]:
    """Extrapolated and not measured: an exponential through the largest tenth of all chunks."""
    limits = {"shipped": DEFAULT_RULES.reject, "float32": FLOORS, "toploc": PUBLISHED}[rules]
    chunks = [distance for each in submissions for row in each for distance in row.activation_chunks]
    tail = extrapolated_tail(chunks, limits.activation_chunk)
    if tail is None:
        return {}
    per_submission = min(1.0, tail * len(chunks) / len(submissions))
    return {
        "a chunk beyond its threshold, per submission, by an exponential tail (extrapolated)": f"{per_submission:.1e}"
    }


def _record_variation(name: str, by_scheme: Mapping[str, Submissions]) -> None:
    own = by_scheme["sketch"]
    detail = {
        "submissions": len(own),
        "chunk distance, largest": f"{max(map(_largest_chunk, own)):.5f}",
        "the same in units of the published thresholds": f"{max(map(_largest_chunk, by_scheme['toploc'])):.4f}",
        "margin, largest": f"{max(row.max_margin for each in own for row in each):.5f}",
        "mean margin, largest": f"{max(map(mean_margin, own)):.6f}",
        "logprob error, largest": f"{max(row.logprob_error for each in own for row in each):.6f}",
        "tokens that were not our draw": sum(row.num_margins for each in own for row in each),
    }
    record(name, max(map(submission_distance, own)), None, None, "largest distance of a submission", detail)


def _largest_chunk(submission: Submission) -> float:
    return max((distance for row in submission for distance in row.activation_chunks), default=0.0)


def _workers(bench: Bench) -> Iterator[tuple[str, list[Completion]]]:
    for name, impostor in IMPOSTORS.items():
        yield name, bench.sampled(*impostor(bench.config, bench.state))
    yield "draws of one's own", bench.sampled(draw_seed=OTHER_SEED)
    for factor in COOLER:
        cooler = replace(bench.params, temperature=bench.params.temperature * factor)
        yield f"temperature x {factor}", bench.sampled(params=cooler)


def _cheats(model: str, benches: Sequence[Bench]) -> None:
    found: dict[str, dict[str, Submissions]] = {}
    for bench in benches:
        for worker, made in _workers(bench):
            for scheme, submissions in _examined(bench, made, lambda each, rows: each.examined(rows)).items():
                found.setdefault(worker, {}).setdefault(scheme, []).extend(submissions)
    for worker, by_scheme in found.items():
        for name, (scheme, is_rejected) in RULES.items():
            _record_caught(f"verification/{model}/{name}/caught/{worker}", by_scheme[scheme], is_rejected)


def _record_caught(name: str, submissions: Sequence[Submission], is_rejected: IsRejected) -> None:
    caught = sum(map(is_rejected, submissions))
    low, high = wilson_interval(caught, len(submissions))
    others = [each for each in submissions if any(row.num_margins for row in each)]
    distances = sorted(map(submission_distance, submissions))
    detail = {
        "caught": caught,
        "submissions": len(submissions),
        "95 % interval": f"{low:.4f} to {high:.4f}",
        "caught of those with a token that was not the draw": f"{sum(map(is_rejected, others))} of {len(others)}",
        "distance": f"{distances[0]:.4f} to {distances[-1]:.4f}",
    }
    record(name, caught / len(submissions), None, None, "share of submissions", detail)


def _older(model: str, bench: Bench) -> None:
    """The smallest number of versions back at which every submission is rejected; 0 = none that was tried."""
    for lr in RATES[model]:
        seen = list(older_versions.measured(bench, lr))
        detail = {
            f"{back} back": " to ".join(f"{value:.5f}" for value in (min(found), max(found)))
            for back, submissions in seen
            if (found := [submission_distance(each) for each in submissions])
        }
        for name in ("shipped", "float32"):
            is_rejected = RULES[name][1]
            caught = [back for back, submissions in seen if all(map(is_rejected, submissions))]
            k_min = float(min(caught, default=0))
            record(
                f"verification/{model}/{name}/versions-back/lr-{lr:g}",
                k_min,
                None,
                None,
                "versions, 0 = none tried",
                detail,
            )


def _choice(model: str, bench: Bench) -> None:
    """Bits per 1,000 tokens that a worker may choose and pass."""
    rows = [row for row in bench.sample() if row.group < NUM_STEERED[model]]
    decoder = build_decoder(bench.config).requires_grad_(False)
    load_hf_state(decoder, bench.state)
    assert DEFAULT_RULES.expected is not None
    for name, limits in (("shipped", DEFAULT_RULES.reject), ("float32", FLOORS)):
        gaps = gaps_of(decoder, rows, SEED, bench.params.reserved_token_ids, limits.max_margin)
        free = bits_per_token(gaps)
        detail = {
            "bits, largest margin alone": f"{1000 * free:.1f}",
            "tokens with another choice": f"{sum(len(each) > 1 for each in gaps) / len(gaps):.1%}",
            "tokens": len(gaps),
        }
        if name == "shipped":
            honest = bits_per_token(gaps, DEFAULT_RULES.expected.mean_margin)
            detail["bits that many submissions leave (drift)"] = f"{1000 * honest:.1f}"
        bits = 1000 * min(free, bits_per_token(gaps, limits.mean_margin))
        record(f"verification/{model}/{name}/choice", bits, None, None, "bits per 1,000 tokens", detail)


def main() -> None:
    torch.set_num_threads(1)
    parts: dict[str, Callable[..., None]] = {"tiny": tiny, "smollm2": smollm2}
    name, *count = sys.argv[1:] or ["tiny"]
    parts[name](*map(int, count))


if __name__ == "__main__":
    main()
