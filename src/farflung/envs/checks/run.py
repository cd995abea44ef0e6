"""All checks of one environment, in order; later ones are left out where an earlier one makes them unsafe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from farflung.envs.base import Environment
from farflung.envs.checks.declared import check_manifest, repeats
from farflung.envs.checks.fingerprint import Fingerprint
from farflung.envs.checks.grades import check_blanks, check_golds, check_hostile, check_speed
from farflung.envs.checks.report import Check, Outcome, failed, left_out
from farflung.envs.checks.tasks import check_determinism, check_splits, check_template
from farflung.model.tokenizer import Tokenizer
from farflung.wire.package import PackageManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How much is looked at, and what must fit."""

    num_tasks: int = 24
    """Of each split."""
    max_grade_s: float = 5.0
    """Half of what validators allow by default (`validator.step_s`)."""
    tokenizer: Tokenizer | None = None
    """None = one of its characters, where it has an alphabet."""
    max_prompt_tokens: int = 0
    """0 = any."""
    max_completion_tokens: int = 0


def check_environment(
    environment: Environment,
    pair: tuple[Fingerprint, Fingerprint],
    options: Options,
    manifest: PackageManifest | None = None,
) -> Iterator[Check]:
    """Every check as it is done. Never raises on anything that an environment raises.

    Args:
        pair: of two processes (`envs.checks.fingerprint`); where one of them hung, nothing is graded here.
        manifest: of its package, if it has one of its own.
    """
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("held-out tasks", lambda: check_splits(environment)),
        ("golds", lambda: check_golds(environment, options.num_tasks)),
        ("blank completions", lambda: check_blanks(environment, options.num_tasks)),
        ("hostile completions", lambda: check_hostile(environment, options.max_grade_s)),
        ("speed", lambda: check_speed(environment, options.num_tasks, options.max_grade_s)),
        (
            "template",
            lambda: check_template(
                environment, options.tokenizer, options.max_prompt_tokens, options.max_completion_tokens
            ),
        ),
    ]
    if manifest is not None:
        steps.append(("manifest", lambda: check_manifest(environment, manifest, pair)))
    yield (first := check_determinism(pair, is_reproducible=repeats(environment)))
    hung = first.outcome is Outcome.FAILED and bool(pair[0].error or pair[1].error)
    for name, step in steps:
        yield left_out(name, "determinism failed") if hung else _done(name, step)


def _done(name: str, step: Callable[[], Check]) -> Check:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - other people's code; that it raises is the finding
        return failed(name, f"raises {type(error).__name__}: {error}"[:500])
