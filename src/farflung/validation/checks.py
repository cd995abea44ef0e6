"""The checks on a submission that could be read, as a table from cheap to dear.

A check returns what it saw wrong, with the offending value, or None. It may rely on every check above it. To add one:
a `RejectReason` at the same place, a row here, an adversary in the tests that only it catches.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from farflung.proofs.shape import shape_problem
from farflung.validation.case import Case
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.verdict import RejectReason

LOGPROB_SLACK = 1e-5
"""How far above 0 a logprob may lie: a float32 softmax summed in blocks overshoots by a few units in the last place."""
LEAST_LOGPROB = -100.0
"""No draw finds a less likely token: Gumbel noise (`slots.noise`) reaches from -3.1 to 22.2, so with V tokens to choose
from the drawn one has a logprob of at least -25.3 - log V; other samplers would need luck of e**-100."""
LIKELY = math.log(0.51)
"""Two different tokens cannot both be likelier than one half; 0.51 leaves room for rounding."""

Check = Callable[[Case], str | None]


def pool(case: Case) -> str | None:
    digests = (case.submission.pool_digest, case.lease.pool_digest)
    if any(digest != case.rules.pool_digest for digest in digests):
        return f"submission and lease name pools {digests}, this is {case.rules.pool_digest}"
    return None


def lease(case: Case) -> str | None:
    """The submission claims this lease and every row is of its version."""
    for field in ("lease_id", "slot", "attempt", "node", "policy_version", "policy_digest"):
        claimed, leased = getattr(case.submission, field), getattr(case.lease, field)
        if claimed != leased:
            return f"{field} is {claimed!r}, the lease says {leased!r}"
    versions = {rollout.policy_version for rollout in case.rollouts}
    if versions != {case.lease.policy_version}:
        return f"rows of versions {sorted(versions)[:8]}, the lease says {case.lease.policy_version}"
    return None


def version_window(case: Case) -> str | None:
    staleness = case.current_version - case.lease.policy_version
    if staleness > case.rules.pool.max_staleness:
        return f"{staleness} versions old, at most {case.rules.pool.max_staleness} allowed"
    return None


def rollout_count(case: Case) -> str | None:
    """Every (group, sample) of the slot once and in order, and as many rollouts and tokens as claimed."""
    size = case.rules.pool.rollouts_per_group
    expected = [(index // size, index % size) for index in range(case.rules.pool.rollouts_per_slot)]
    seen = [(rollout.group, rollout.sample) for rollout in case.rollouts]
    if seen != expected:
        return f"{len(seen)} rollouts, not the {len(expected)} of the slot in order of (group, sample)"
    num_tokens = sum(len(rollout.completion_tokens) for rollout in case.rollouts)
    claimed = (case.submission.num_rollouts, case.submission.num_tokens)
    if claimed != (len(seen), num_tokens):
        return f"claimed {claimed} rollouts and tokens, the file has {(len(seen), num_tokens)}"
    return None


def task(case: Case) -> str | None:
    return _first(case, lambda rollout: _wrong_task(case, rollout))


def prompt(case: Case) -> str | None:
    return _first(case, lambda rollout: _wrong_prompt(case, rollout))


def token_range(case: Case) -> str | None:
    """Between turns a template may write reserved ids; those in turns are the transcript's to find."""
    tokens = _all_completion_tokens(case)
    reserved = () if case.is_episodic else case.rules.reserved_token_ids
    is_bad = (tokens < 0) | (tokens >= case.rules.vocab_size) | np.isin(tokens, np.asarray(reserved, dtype=np.int64))
    if is_bad.any():
        return f"token {tokens[is_bad][0]}: ids lie in [0, {case.rules.vocab_size}) and are not reserved"
    return None


def termination(case: Case) -> str | None:
    return _first(case, lambda rollout: _wrong_termination(case, rollout))


def transcript(case: Case) -> str | None:
    """What was told between turns is what the environment says, and every turn and row ends where it has to."""
    for rollout, found in zip(case.rollouts, case.transcripts, strict=True):
        if found.problem:
            return f"rollout ({rollout.group}, {rollout.sample}): {found.problem}"
    return None


def target_length(case: Case) -> str | None:
    built = case.evidence.target_lengths
    asked = case.lease.target_lengths if built is None else built
    for rollout in case.rollouts:
        if rollout.target_length != asked[rollout.group]:
            return f"group {rollout.group}: target length {rollout.target_length}, the task's is {asked[rollout.group]}"
    return None


def logprob_range(case: Case) -> str | None:
    """Each could be the log-probability of a drawn token, and those of one prompt's completions fit together.

    Two completions of one prompt differ somewhere for the first time. Up to there they had the same distribution, in
    which two tokens cannot both be likelier than not: so not every token of both can be, as with all logprobs 0. Of
    episodes this is looked at in first turns, since later ones are answers to what may differ.
    """
    logprobs = np.concatenate([rollout.logprobs for rollout in case.rollouts])
    is_good = np.isfinite(logprobs) & (logprobs <= LOGPROB_SLACK) & (logprobs >= LEAST_LOGPROB)
    if not is_good.all():
        return f"logprob {logprobs[~is_good][0]}: it must be a number in [{LEAST_LOGPROB:g}, 0]"
    if (told := logprobs[~np.concatenate(case.drawn)]).any():
        return f"logprob {told[told != 0][0]} of a token that nobody drew: it must be 0"
    surest: dict[tuple[int, bytes], tuple[Rollout, NDArray[np.int32]]] = {}
    for rollout, found in zip(case.rollouts, case.transcripts, strict=True):
        first = slice(*found.spans[0]) if found.spans else slice(0)
        if not rollout.logprobs[first].size or rollout.logprobs[first].min() <= LIKELY:
            continue
        tokens = rollout.completion_tokens[first]
        other, other_tokens = surest.setdefault((rollout.group, rollout.prompt_tokens.tobytes()), (rollout, tokens))
        if not np.array_equal(tokens, other_tokens):
            return (
                f"rollouts ({rollout.group}, {other.sample}) and ({rollout.group}, {rollout.sample}): different "
                f"completions of one prompt, and every token of both with a logprob above {LIKELY:.2f}"
            )
    return None


def proof_shape(case: Case) -> str | None:
    """As many bytes as the drawn tokens take; in open pools none."""
    rules = case.rules.pool.proofs
    for rollout, drawn, found in zip(case.rollouts, case.drawn, case.transcripts, strict=True):
        if not found.spans:
            continue  # an episode that could not be replayed
        problem = (
            (f"{len(rollout.proof)} bytes in an open pool" if rollout.proof else None)
            if rules is None
            else shape_problem(rules.scheme, rollout.proof, int(drawn.sum()))
        )
        if problem is not None:
            return f"rollout ({rollout.group}, {rollout.sample}): a proof of {problem}"
    return None


CHECKS: tuple[tuple[RejectReason, Check], ...] = (
    (RejectReason.WRONG_POOL, pool),
    (RejectReason.WRONG_LEASE, lease),
    (RejectReason.VERSION_WINDOW, version_window),
    (RejectReason.ROLLOUT_COUNT, rollout_count),
    (RejectReason.WRONG_TASK, task),
    (RejectReason.PROMPT, prompt),
    (RejectReason.TOKEN_RANGE, token_range),
    (RejectReason.TERMINATION, termination),
    (RejectReason.TRANSCRIPT, transcript),
    (RejectReason.TARGET_LENGTH, target_length),
    (RejectReason.LOGPROB_RANGE, logprob_range),
    (RejectReason.PROOF_SHAPE, proof_shape),
)


def _wrong_task(case: Case, rollout: Rollout) -> str | None:
    claimed, expected = (rollout.env, rollout.task_id), (case.evidence.env, case.evidence.task_ids[rollout.group])
    return None if claimed == expected else f"task {claimed!r}, the lease's is {expected!r}"


def _wrong_prompt(case: Case, rollout: Rollout) -> str | None:
    if rollout.sample % case.rules.pool.environment.num_agents:
        return None  # another agent's prompt follows from what was said before: the transcript's to find
    canonical = case.evidence.prompt_tokens[rollout.group]
    if np.array_equal(rollout.prompt_tokens, canonical):
        return None
    return f"prompt of {len(rollout.prompt_tokens)} tokens is not the canonical one of {len(canonical)}"


def _wrong_termination(case: Case, rollout: Rollout) -> str | None:
    """`eos`: the last token is an end-of-sequence id; `length`: as long as can be; neither goes on after an end.

    Of episodes only what the last token says: each turn ends so, and `transcript` finds the limits and ends of all.
    """
    tokens, longest = rollout.completion_tokens, case.rules.pool.max_completion_tokens
    if len(tokens) > longest:
        return f"{len(tokens)} tokens, at most {longest} allowed"
    ends = tokens == case.rules.eos_token_ids[0]
    for eos in case.rules.eos_token_ids[1:]:  # one or two, for which `np.isin` is ten times slower
        ends |= tokens == eos
    if ends[:-1].any() and not case.is_episodic:
        return f"goes on after end-of-sequence id {tokens[:-1][ends[:-1]][0]}"
    if ends[-1]:
        expected = StopReason.EOS
    elif len(tokens) == longest or case.is_episodic:
        expected = StopReason.LENGTH
    else:
        return f"{len(tokens)} tokens end neither in an end-of-sequence id nor at the limit of {longest}"
    return None if rollout.stop_reason is expected else f"stop reason {rollout.stop_reason}, not {expected}"


def _first(case: Case, wrong: Callable[[Rollout], str | None]) -> str | None:
    for rollout in case.rollouts:
        detail = wrong(rollout)
        if detail is not None:
            return f"rollout ({rollout.group}, {rollout.sample}): {detail}"
    return None


def _all_completion_tokens(case: Case) -> NDArray[np.int32]:
    return np.concatenate([rollout.completion_tokens for rollout in case.rollouts])
