"""`farflung verify FILE --model MODEL --seed HEX`: check a rollout file by hand, each figure beside its threshold.

With the rules of its pool also what needs them: episodes of several turns are played again.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from farflung.cli.proof_rules import read_proof_rules
from farflung.errors import PeerFault, UserError
from farflung.proofs.shape import shape_problem
from farflung.validation.proof_checks import measured, proof_problem
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures
from farflung.wire.rollout_file import pool_digest_of, read_rollouts
from farflung.wire.verdict import RejectReason

if TYPE_CHECKING:
    from farflung.model.folder import LoadedModel
    from farflung.model.tokenizer import Tokenizer
    from farflung.wire.rollout import Rollout

Spans = tuple[tuple[int, int], ...]
"""[start, end) of the turns of the model in a completion."""
Problem = tuple[RejectReason, str]

MAX_FILE_BYTES = 1 << 30
EXIT_REJECTED = 1
_LIMIT_OF = {
    "proof/activation_chunk": "activation_chunk",
    "proof/activation_submission": "activation_submission",
    "proof/max_margin": "max_margin",
    "proof/mean_margin": "mean_margin",
    "proof/logprob_error": "logprob_error",
}


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Model:
    """The version that the file claims."""

    loaded: "LoadedModel"
    tokenizer: "Tokenizer"
    eos_token_ids: tuple[int, ...]
    reserved_token_ids: tuple[int, ...]


def run_verify(arguments: Namespace) -> int:
    """0 when the file is what this model draws with this seed, 1 when not."""
    from farflung.cli.verify_pool import rules_of, task_indices

    pool = None if arguments.pool is None else rules_of(arguments.pool)
    rules = _rules(arguments, pool)
    rollouts = _read(Path(arguments.file), pool)
    seed, indices = _seed(arguments.seed), task_indices(arguments.tasks)
    model = _load(arguments, rollouts)
    spans, problem = _spans(model, rollouts, pool, indices)
    figures: list[RolloutFigures] = []
    if problem is None:
        _check_shapes(rollouts, spans, rules)
        temperature = _temperature(arguments, pool)
        figures = _figures(model, rollouts, spans, seed, temperature, rules)
        problem = proof_problem(figures, rules.reject)
    if arguments.json:
        result = {
            "is_accepted": problem is None,
            "reason": None if problem is None else problem[0].value,
            "detail": "" if problem is None else problem[1],
            "measured": measured(figures) if figures else {},
        }
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        _show(figures, rules, problem)
    return 0 if problem is None else EXIT_REJECTED


def _rules(arguments: Namespace, pool: PoolSpec | None) -> ProofRules:
    if arguments.thresholds:
        return read_proof_rules(Path(arguments.thresholds))
    return DEFAULT_RULES if pool is None or pool.proofs is None else pool.proofs


def _temperature(arguments: Namespace, pool: PoolSpec | None) -> float:
    if arguments.temperature is not None:
        return float(arguments.temperature)
    return 1.0 if pool is None else pool.temperature


def _read(path: Path, pool: PoolSpec | None) -> "list[Rollout]":
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if size > MAX_FILE_BYTES:
        raise UserError(f"{path} has {size} bytes, at most {MAX_FILE_BYTES} are looked at")
    try:
        return read_rollouts(data, pool_digest=pool_digest_of(data) if pool is None else pool.digest())
    except PeerFault as fault:
        what = "a rollout file" if pool is None else f"a rollout file of pool {pool.name}"
        raise UserError(f"{path} is not {what}: {fault.detail}") from fault


def _seed(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UserError(f"--seed is {text[:80]!r}: it must be the draw seed of the lease, 64 hex digits") from None


def _load(arguments: Namespace, rollouts: "Sequence[Rollout]") -> "Model":
    import torch

    from farflung.model.folder import load_folder
    from farflung.model.tokenizer import Tokenizer
    from farflung.model.vocabulary import end_of_sequence, never_drawn

    torch.set_num_threads(arguments.threads)
    loaded = load_folder(Path(arguments.model))
    tokens = np.concatenate([part for row in rollouts for part in (row.prompt_tokens, row.completion_tokens)])
    for token in (int(tokens.max()), int(tokens.min())):
        if not 0 <= token < loaded.config.vocab_size:
            raise UserError(f"the file has token {token}, and {arguments.model} knows {loaded.config.vocab_size}")
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    return Model(
        loaded=loaded,
        tokenizer=tokenizer,
        eos_token_ids=end_of_sequence(tokenizer, loaded.config),
        reserved_token_ids=never_drawn(tokenizer, loaded.config),
    )


def _spans(
    model: "Model", rollouts: "Sequence[Rollout]", pool: PoolSpec | None, indices: Sequence[int] | None
) -> tuple[list[Spans], Problem | None]:
    """What the model drew of each completion: all of it, unless the pool's rules say that there are several turns."""
    whole: list[Spans] = [((0, len(row.completion_tokens)),) for row in rollouts]
    if pool is None:
        return whole, None
    from farflung.cli.verify_pool import transcripts_of
    from farflung.validation.case import JudgeRules

    rules = JudgeRules(
        pool=pool,
        vocab_size=model.loaded.config.vocab_size,
        eos_token_ids=model.eos_token_ids,
        reserved_token_ids=model.reserved_token_ids,
    )
    transcripts = transcripts_of(rollouts, rules, model.tokenizer, indices)
    if transcripts is None:
        return whole, None
    for row, found in zip(rollouts, transcripts, strict=True):
        if found.problem:
            return whole, (RejectReason.TRANSCRIPT, f"rollout ({row.group}, {row.sample}): {found.problem}")
    return [found.spans for found in transcripts], None


def _check_shapes(rollouts: "Sequence[Rollout]", spans: Sequence[Spans], rules: ProofRules) -> None:
    for rollout, turns in zip(rollouts, spans, strict=True):
        num_drawn = sum(end - start for start, end in turns)
        if problem := shape_problem(rules.scheme, rollout.proof, num_drawn):
            raise UserError(
                f"rollout ({rollout.group}, {rollout.sample}) has a proof of {problem}; completions of several turns "
                "need --pool, with which they are replayed"
            )


def _figures(
    model: "Model",
    rollouts: "Sequence[Rollout]",
    spans: Sequence[Spans],
    seed: bytes,
    temperature: float,
    rules: ProofRules,
) -> list[RolloutFigures]:
    from farflung.model.build import build_decoder
    from farflung.model.weights import load_hf_state
    from farflung.validator.prefill import Claim, PrefillParams, figures_of

    decoder = build_decoder(model.loaded.config).requires_grad_(False)
    load_hf_state(decoder, model.loaded.state)
    params = PrefillParams(temperature=temperature, reserved_token_ids=model.reserved_token_ids, scheme=rules.scheme)
    pairs = zip(rollouts, spans, strict=True)
    return figures_of(decoder, [Claim(rollout=row, spans=turns, draw_seed=seed) for row, turns in pairs], params)


def _show(figures: Sequence[RolloutFigures], rules: ProofRules, problem: Problem | None) -> None:
    console = Console(file=sys.stdout, highlight=False)
    if figures:
        _show_figures(console, figures, rules)
    if problem is None:
        console.print("accepted: this is what the model draws with this seed", style="green")
    else:
        console.print(f"rejected ({problem[0]}): {problem[1]}", style="red", markup=False)


def _show_figures(console: Console, figures: Sequence[RolloutFigures], rules: ProofRules) -> None:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("check", "measured", "rejected above", "slashed above", ""):
        table.add_column(title, justify="left" if title in ("check", "") else "right")
    found = measured(figures)
    for name, limit in _LIMIT_OF.items():
        reject, slash = getattr(rules.reject, limit), getattr(rules.slash, limit)
        word = "ok" if found[name] <= reject else "above" if found[name] <= slash else "far above"
        table.add_row(limit.replace("_", " "), f"{found[name]:.5f}", f"{reject:.5f}", f"{slash:.5f}", word)
    least = -found["proof/least_surprise"]
    reject, slash = rules.reject.max_likeliness, rules.slash.max_likeliness
    word = "ok" if least <= reject else "above"
    table.add_row("likelier than draws", f"{least:.2f}", f"{reject:.2f}", f"{slash:.2f}", word)
    console.print(table)
    num_tokens = sum(each.num_tokens for each in figures)
    console.print(f"bytes made without a model would be at {found['proof/least_forgery']:.2f}, by {rules.scheme}")
    console.print(f"{len(figures)} rollouts, {num_tokens} tokens, {found['proof/num_margins']:.0f} not our draw")
