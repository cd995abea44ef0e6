"""`farflung calibrate MODEL`: thresholds for proofs, from honest work and from every impostor on this model."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from farflung.cli.calibrate_picture import draw_separation
from farflung.envs.registry import load_environment
from farflung.proofs.calibration import extrapolated_tail, rate_upper_bound, roc
from farflung.validation.proof_checks import proof_problem
from farflung.wire.proof import Thresholds
from farflung.wire.task import Message

if TYPE_CHECKING:
    from farflung.validator.calibrate import Bench, Calibration, Spread

PROMPTS = (
    "Tell me about the sea.",
    "Write a short poem about rain.",
    "What is 3 + 4?",
    "Name three fruits and their colours.",
    "Explain why the sky is blue.",
    "How do I make tea?",
    "List the days of the week.",
    "Translate 'good morning' into French.",
)
"""What a model is asked where no environment is named."""


def run_calibrate(arguments: Namespace) -> int:
    """0 when every impostor is told from every honest submission, 1 when not."""
    from farflung.validator.calibrate import calibrated  # torch takes a while to import

    bench = _bench(arguments)
    console = Console(file=sys.stderr, highlight=False)
    spreads: list[Spread] = []
    for spread in bench.spreads():
        spreads.append(spread)
        console.print(f"  {spread.name}: distance {_range(spread.figure('activation_submission'))}")
    found = calibrated(spreads, bench.scheme)
    out = Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(_report(arguments, found), indent=1) + "\n")
    picture = out.with_suffix(".png")
    draw_separation(found, picture)
    _show(found)
    sys.stdout.write(f"thresholds: {out} (for pool.proof_rules)\npicture: {picture}\n")
    return 0 if all(each.is_clean for each in found.separations.values()) else 1


def _bench(arguments: Namespace) -> "Bench":
    import torch

    from farflung.engine.base import SamplingParams
    from farflung.model.folder import load_folder
    from farflung.model.tokenizer import Tokenizer
    from farflung.model.vocabulary import end_of_sequence, never_drawn
    from farflung.validator.calibrate import Bench

    torch.set_num_threads(arguments.threads)
    loaded = load_folder(Path(arguments.model))
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    return Bench(
        config=loaded.config,
        state=loaded.state,
        prompts=[tokenizer.encode_chat(messages) for messages in _asked(arguments)],
        params=SamplingParams(
            temperature=arguments.temperature,
            max_completion_tokens=arguments.max_tokens,
            eos_token_ids=end_of_sequence(tokenizer, loaded.config),
            reserved_token_ids=never_drawn(tokenizer, loaded.config),
        ),
        num_samples=arguments.rollouts,
        scheme=arguments.scheme,
    )


def _asked(arguments: Namespace) -> Sequence[Sequence[Message]]:
    if arguments.env:
        environment = load_environment(arguments.env, 0, {})
        return [environment.task("train", index).messages for index in range(arguments.submissions)]
    return [(Message(role="user", content=PROMPTS[index % len(PROMPTS)]),) for index in range(arguments.submissions)]


def _report(arguments: Namespace, found: "Calibration") -> dict[str, object]:
    """Everything that was measured, for whoever wants to judge the thresholds."""
    honest = [spread for spread in found.spreads if spread.is_honest]
    others = [spread for spread in found.spreads if not spread.is_honest]
    return {
        "model": Path(arguments.model).name,
        "submissions": arguments.submissions,
        "rollouts_per_submission": arguments.rollouts,
        "max_tokens": arguments.max_tokens,
        "least_forgery": _finite(found.least_forgery),
        "rules": msgspec.to_builtins(found.rules),
        "separations": {
            name: {"honest_max": each.honest_max, "impostor_min": _finite(each.impostor_min), "is_clean": each.is_clean}
            for name, each in found.separations.items()
        },
        "spreads": [
            {
                "name": spread.name,
                "is_honest": spread.is_honest,
                "cheats_at": spread.cheats_at,
                **{name: spread.figure(name) for name in Thresholds.__struct_fields__},
            }
            for spread in found.spreads
        ],
        "roc": {
            name: roc(_figures(honest, name), _figures(others, name))
            for name in ("activation_submission", "mean_margin")
        },
    }


def _figures(spreads: "Sequence[Spread]", name: str) -> list[float]:
    return [value for spread in spreads for value in spread.figure(name)]


def _show(found: "Calibration") -> None:
    console = Console(file=sys.stdout, highlight=False)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("figure", "honest, largest", "impostors, smallest", "rejected above", ""):
        table.add_column(title, justify="left" if title in ("figure", "") else "right")
    for name, each in found.separations.items():
        lowest = "" if math.isinf(each.impostor_min) else f"{each.impostor_min:.5f}"
        verdict = "apart" if each.is_clean else "NOT APART"
        table.add_row(name, f"{each.honest_max:.5f}", lowest, f"{each.threshold:.5f}", verdict)
    console.print(table)
    honest = [spread for spread in found.spreads if spread.is_honest]
    total = sum(len(spread.submissions) for spread in honest)
    bound = rate_upper_bound(0, total)
    console.print(f"0 of {total} honest submissions rejected: at most {bound:.2%} are, with 95 % confidence")
    rules = found.rules.reject
    tails = [extrapolated_tail(_figures(honest, name), getattr(rules, name)) for name in rules.__struct_fields__]
    known = [tail for tail in tails if tail is not None]
    if known:
        console.print(f"extrapolated by an exponential tail, not measured: {max(known):.1e} per submission")
    console.print(
        f"bytes made without a model: at {found.least_forgery:.3f} or further, "
        f"{'PASS' if found.least_forgery <= rules.activation_chunk else 'rejected'}"
    )
    missed = [spread.name for spread in found.spreads if not spread.is_honest and _slips_through(spread, found)]
    if missed:
        console.print(f"some submissions pass as honest: {', '.join(missed)}", style="red")


def _slips_through(spread: "Spread", found: "Calibration") -> bool:
    return any(proof_problem(submission, found.rules.reject) is None for submission in spread.submissions)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.4f} to {max(values):.4f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
