"""`farflung verify FILE --model MODEL --seed HEX`: check a rollout file by hand, each figure beside its threshold."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from farflung.cli.proof_rules import read_proof_rules
from farflung.errors import PeerFault, UserError
from farflung.proofs.shape import shape_problem
from farflung.validation.proof_checks import measured, proof_problem
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures
from farflung.wire.rollout_file import pool_digest_of, read_rollouts

if TYPE_CHECKING:
    from farflung.wire.rollout import Rollout

MAX_FILE_BYTES = 1 << 30
EXIT_REJECTED = 1
_LIMIT_OF = {
    "proof/activation_chunk": "activation_chunk",
    "proof/activation_submission": "activation_submission",
    "proof/max_margin": "max_margin",
    "proof/mean_margin": "mean_margin",
    "proof/logprob_error": "logprob_error",
}


def run_verify(arguments: Namespace) -> int:
    """0 when the file is what this model draws with this seed, 1 when not."""
    rules = read_proof_rules(Path(arguments.thresholds)) if arguments.thresholds else DEFAULT_RULES
    rollouts = _read(Path(arguments.file))
    figures = _figures(arguments, rollouts, _seed(arguments.seed), rules)
    problem = proof_problem(figures, rules.reject)
    if arguments.json:
        result = {
            "is_accepted": problem is None,
            "reason": None if problem is None else problem[0].value,
            "detail": "" if problem is None else problem[1],
            "measured": measured(figures),
        }
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        _show(figures, rules, problem)
    return 0 if problem is None else EXIT_REJECTED


def _read(path: Path) -> "list[Rollout]":
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if size > MAX_FILE_BYTES:
        raise UserError(f"{path} has {size} bytes, at most {MAX_FILE_BYTES} are looked at")
    try:
        return read_rollouts(data, pool_digest=pool_digest_of(data))
    except PeerFault as fault:
        raise UserError(f"{path} is not a rollout file: {fault.detail}") from fault


def _seed(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UserError(f"--seed is {text[:80]!r}: it must be the draw seed of the lease, 64 hex digits") from None


def _figures(
    arguments: Namespace, rollouts: "Sequence[Rollout]", seed: bytes, rules: ProofRules
) -> list[RolloutFigures]:
    """Every completion is taken as one turn of the model."""
    import torch

    from farflung.model.build import build_decoder
    from farflung.model.folder import load_folder
    from farflung.model.tokenizer import Tokenizer
    from farflung.model.vocabulary import never_drawn
    from farflung.model.weights import load_hf_state
    from farflung.validator.prefill import Claim, PrefillParams, figures_of

    for rollout in rollouts:
        if problem := shape_problem(rules.scheme, rollout.proof, len(rollout.completion_tokens)):
            raise UserError(f"rollout ({rollout.group}, {rollout.sample}) has a proof of {problem}")
    torch.set_num_threads(arguments.threads)
    loaded = load_folder(Path(arguments.model))
    largest = max(int(max(row.prompt_tokens.max(), row.completion_tokens.max())) for row in rollouts)
    if largest >= loaded.config.vocab_size:
        raise UserError(f"the file has token {largest}, and {arguments.model} knows {loaded.config.vocab_size}")
    decoder = build_decoder(loaded.config).requires_grad_(False)
    load_hf_state(decoder, loaded.state)
    params = PrefillParams(
        temperature=arguments.temperature,
        reserved_token_ids=never_drawn(Tokenizer.from_files(loaded.tokenizer_files), loaded.config),
        scheme=rules.scheme,
    )
    claims = [Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=seed, slot=0) for row in rollouts]
    return figures_of(decoder, claims, params)


def _show(figures: Sequence[RolloutFigures], rules: ProofRules, problem: tuple[object, str] | None) -> None:
    console = Console(file=sys.stdout, highlight=False)
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
    if problem is None:
        console.print("accepted: this is what the model draws with this seed", style="green")
    else:
        console.print(f"rejected ({problem[0]}): {problem[1]}", style="red", markup=False)
