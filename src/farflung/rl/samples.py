"""From graded groups to training samples: advantages of every token, and the loss mask.

A rollout without any token to learn from (no reward, or cut off at the length limit where those are masked) makes no
sample, so it costs no forward pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farflung.rl.advantage import STD_EPS, batch_advantages
from farflung.rl.estimators import Estimator, estimate_advantages
from farflung.rl.expectation import group_log_expectation
from farflung.rl.reinforce_pp import returns_with_kl, whitened_returns
from farflung.rl.turns import Key, at_tokens, by_turn, returns_to_go, turns_of
from farflung.rl.types import RolloutGroup, TrainingSample, Turn
from farflung.wire.rollout import Rollout, StopReason

NO_PENALTIES: Mapping[Key, NDArray[np.floating]] = {}


def training_samples(
    groups: Sequence[RolloutGroup],
    *,
    normalize: Estimator = "none",
    eps: float = STD_EPS,
    mask_truncated: bool = False,
    penalties: Mapping[Key, NDArray[np.floating]] = NO_PENALTIES,
) -> list[TrainingSample]:
    """Samples of all groups, ordered as the groups and by rollout within.

    Args:
        groups: those that can be learned from (`signal.why_no_learning`).
        normalize: see `estimators`.
        eps: added to the std.
        mask_truncated: rollouts that hit the length limit keep their place in the group's mean but carry no gradient.
        penalties: (slot, group, sample) -> [T] what each token costs (coefficient * KL to a reference); off the reward
            of its turn, or, with reinforce_pp, off the return at each token.

    Raises:
        ValueError: a group of one, where the estimator compares within groups.
    """
    rows = [_rows(group, mask_truncated, NO_PENALTIES if _is_per_token(normalize) else penalties) for group in groups]
    values = _turn_values(rows, normalize, eps, is_whitened=not (penalties and _is_per_token(normalize)))
    kept = [
        _Kept.of(group, row, row_values)
        for group, rows_G, values_G in zip(groups, rows, values, strict=True)
        for row, row_values in zip(rows_G, values_G, strict=True)
        if row.keeps
    ]
    if penalties and _is_per_token(normalize):
        kept = _with_kl(kept, penalties)
    expectations = {
        (group.slot, group.group, group.agent): _log_expectation(rows_G)
        for group, rows_G in zip(groups, rows, strict=True)
    }
    return [each.sample(expectations[each.group.slot, each.group.group, each.group.agent]) for each in kept]


def _is_per_token(normalize: Estimator) -> bool:
    return normalize.startswith("reinforce_pp")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Row:
    """One rollout on its way."""

    rollout: Rollout
    turns: tuple[Turn, ...]
    """None at all without a reward."""
    keeps: bool
    """Whether it makes a sample."""

    @property
    def returns(self) -> list[float]:
        return returns_to_go([turn.reward for turn in self.turns])

    @property
    def num_loss_tokens(self) -> list[int]:
        return [turn.num_tokens * self.keeps for turn in self.turns]


def _rows(group: RolloutGroup, mask_truncated: bool, penalties: Mapping[Key, NDArray[np.floating]]) -> list[_Row]:
    return [
        _Row(
            rollout=rollout,
            turns=turns,
            keeps=bool(turns) and not (mask_truncated and rollout.stop_reason is StopReason.LENGTH),
        )
        for rollout, turns in zip(group.rollouts, turns_of(group, penalties), strict=True)
    ]


def _turn_values(
    rows: Sequence[Sequence[_Row]], normalize: Estimator, eps: float, *, is_whitened: bool
) -> list[list[list[float]]]:
    """Group -> rollout -> advantage of each of its turns. Turn k is compared with turn k of the group's rollouts."""
    returns = [by_turn([row.returns for row in rows_G]) for rows_G in rows]
    counts = [by_turn([row.num_loss_tokens for row in rows_G]) for rows_G in rows]
    columns = [column for group in returns for column in group]
    if is_whitened:
        num_tokens = [[int(count or 0) for count in column] for group in counts for column in group]
        advantages = estimate_advantages(columns, num_tokens, normalize, eps=eps)
    elif normalize == "reinforce_pp_baseline":
        advantages = batch_advantages(columns)
    else:
        advantages = [np.array([np.nan if value is None else value for value in column]) for column in columns]
    values, first = [], 0
    for rows_G, group in zip(rows, returns, strict=True):
        own = advantages[first : first + len(group)]
        first += len(group)
        values.append([[float(own[k][i]) for k in range(len(row.turns))] for i, row in enumerate(rows_G)])
    return values


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Kept:
    """A rollout that makes a sample."""

    group: RolloutGroup
    rollout: Rollout
    advantages_T: NDArray[np.float64]
    mask_T: NDArray[np.bool_]

    @classmethod
    def of(cls, group: RolloutGroup, row: _Row, values: Sequence[float]) -> "_Kept":
        advantages_T, mask_T = at_tokens(values, row.turns, len(row.rollout.completion_tokens))
        return cls(group=group, rollout=row.rollout, advantages_T=advantages_T, mask_T=mask_T)

    def sample(self, log_expectation: float | None) -> TrainingSample:
        rollout = self.rollout
        return TrainingSample(
            tokens=np.concatenate([rollout.prompt_tokens, rollout.completion_tokens]),
            num_prompt_tokens=len(rollout.prompt_tokens),
            behaviour_logprobs=rollout.logprobs,
            advantages=self.advantages_T.astype(np.float32),
            loss_mask=self.mask_T,
            policy_version=rollout.policy_version,
            slot=self.group.slot,
            group=self.group.group,
            sample=rollout.sample,
            group_log_expectation=log_expectation,
        )


def _with_kl(kept: Sequence[_Kept], penalties: Mapping[Key, NDArray[np.floating]]) -> list[_Kept]:
    """Returns become advantages: less the KL still to come at each token, then whitened over the step."""
    masks = [each.mask_T for each in kept]
    returns = [
        returns_with_kl(
            each.advantages_T, penalties[each.group.slot, each.group.group, each.rollout.sample], each.mask_T, beta=1.0
        )
        for each in kept
    ]
    return [
        _Kept(group=each.group, rollout=each.rollout, advantages_T=advantages_T, mask_T=each.mask_T)
        for each, advantages_T in zip(kept, whitened_returns(returns, masks), strict=True)
    ]


def _log_expectation(rows_G: Sequence[_Row]) -> float | None:
    kept = [_mean_logprob(row) for row in rows_G if row.keeps]
    return group_log_expectation(kept) if kept else None


def _mean_logprob(row: _Row) -> float:
    """Of the tokens that the policy drew."""
    drawn = [row.rollout.logprobs[start:end] for turn in row.turns for start, end in turn.spans]
    return float(np.concatenate(drawn).mean())
