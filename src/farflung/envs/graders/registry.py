"""Graders by name and version.

    exact           text@1, integer@1, math-exact@1
    exact first     math@1: a computer algebra system where the rules are undecided; not reproducible
    programs        code@1: in a sandbox; not reproducible
    verifiers       ascii-tree@1, code-output@1, git-diff@1, instructions@1, json-schema@1, json-value@1, null@1,
                    unscramble@1
    judges          judge@1, judge-pair@1: not reproducible

A published version never changes its verdicts: `tests/envs/graders/frozen_verdicts.json` holds some of each. Another
rule is another version beside the old one, for as long as pools name that. A grader is built when something is graded
first, so that a machine without its sandbox or judge can sample tasks that need one.
"""

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from farflung.envs.graders.base import Grader, GraderKind
from farflung.envs.graders.code import CODE_KINDS
from farflung.envs.graders.judge import build_judge
from farflung.envs.graders.judge_client import require_endpoint
from farflung.envs.graders.judge_pair import build_pair_judge
from farflung.envs.graders.math import MATH_KINDS
from farflung.envs.graders.rules import RULE_KINDS
from farflung.errors import UserError
from farflung.wire.pool import EnvArg, GraderSpec

NUM_BUILT = 64
"""Graders that are kept, with their processes and connections."""

KINDS: Mapping[str, GraderKind] = {
    kind.label: kind
    for kind in (
        *RULE_KINDS,
        *MATH_KINDS,
        *CODE_KINDS,
        GraderKind(name="judge", version=1, build=build_judge, is_reproducible=False, require_ready=require_endpoint),
        GraderKind(
            name="judge-pair",
            version=1,
            build=build_pair_judge,
            is_reproducible=False,
            require_ready=require_endpoint,
        ),
    )
}


def grader_spec(label: str, args: Mapping[str, EnvArg] | None = None) -> GraderSpec:
    """The record of `math@1` with arguments; the grader need not be known here.

    Raises:
        UserError: not of the form NAME@VERSION.
    """
    name, _, version = label.partition("@")
    if not name or not version.isdecimal() or len(version) > 6 or int(version) < 1:
        raise UserError(f"grader {label!r}: write NAME@VERSION, for example {next(iter(KINDS))}")
    return GraderSpec(name=name, version=int(version), args=dict(args or {}))


def kind_of(spec: GraderSpec) -> GraderKind:
    """Raises `UserError` for a grader or a version that is not installed here."""
    kind = KINDS.get(spec.label)
    if kind is not None:
        return kind
    versions = sorted(other.version for other in KINDS.values() if other.name == spec.name)
    if versions:
        raise UserError(
            f"grader {spec.label} is not known here, which has version {', '.join(map(str, versions))} of it: install "
            "the release of farflung that the pool was made with"
        )
    close = difflib.get_close_matches(spec.name, {other.name for other in KINDS.values()}, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UserError(f"no grader is called {spec.name}; {meant}known: {', '.join(KINDS)}")


def build_grader(spec: GraderSpec) -> Grader:
    """The grader of a record; the same object for the same record within a process.

    Raises:
        UserError: not known here, or wrong arguments.
    """
    return _built(spec.to_bytes())


def require_known(specs: Iterable[GraderSpec]) -> None:
    """Raises `UserError` for the first that is not known here, or whose arguments are wrong."""
    for spec in specs:
        build_grader(spec)


def require_ready(specs: Iterable[GraderSpec]) -> None:
    """Raises `UserError` for the first that this machine cannot grade with."""
    for spec in specs:
        build_grader(spec)
        kind_of(spec).require_ready()


def are_reproducible(specs: Iterable[GraderSpec]) -> bool:
    """Whether whoever grades again gets the same verdicts. Raises as `kind_of`."""
    return all(kind_of(spec).is_reproducible for spec in specs)


@lru_cache(NUM_BUILT)
def _built(data: bytes) -> Grader:
    spec = GraderSpec.from_bytes(data)
    return kind_of(spec).build(spec.args)
