"""Counters over the whole run, which outlive the slots that they counted."""

from collections.abc import Mapping

from msgspec.structs import replace

from farflung.wire.canonical import Record

MAX_REASONS = 64
"""Distinct drop reasons that are counted apart; a trainer's or validator's further inventions count as `other`."""
OTHER = "other"
WITHOUT_GRADIENT = "groups_without_gradient"
"""Groups of consumed slots that were not trained on: all rewards equal, or no grade."""

NOT_JUDGED = "not judged"
"""A fault of grading: the validator could not judge the submission at all."""


class Tally(Record, frozen=True, kw_only=True):
    """What became of the slots so far."""

    final: dict[str, int] = {}
    """Final `SlotState` -> slots."""
    drops: dict[str, int] = {}
    """Reason -> groups that were not trained on."""
    grading_faults: dict[str, int] = {}
    """Environment and what went wrong, such as "sort-digits: timeout" -> completions without a grade for it."""
    faults: dict[str, int] = {}
    """Kind of fault that was recorded against nodes (`wire.panel.FaultKind`) -> times."""
    tokens_submitted: int = 0
    """Completion tokens, as claimed by submissions."""
    tokens_accepted: int = 0

    def with_final(self, state: str) -> "Tally":
        return replace(self, final=_plus(self.final, state, 1))

    def with_drop(self, reason: str, num_groups: int) -> "Tally":
        if num_groups == 0:
            return self
        known = reason in self.drops or len(self.drops) < MAX_REASONS
        return replace(self, drops=_plus(self.drops, reason if known else OTHER, num_groups))

    def with_grading_fault(self, name: str, num_completions: int) -> "Tally":
        known = name in self.grading_faults or len(self.grading_faults) < MAX_REASONS
        return replace(self, grading_faults=_plus(self.grading_faults, name if known else OTHER, num_completions))

    def with_fault(self, kind: str) -> "Tally":
        return replace(self, faults=_plus(self.faults, kind, 1))

    def with_tokens(self, *, submitted: int = 0, accepted: int = 0) -> "Tally":
        return replace(
            self,
            tokens_submitted=self.tokens_submitted + submitted,
            tokens_accepted=self.tokens_accepted + accepted,
        )


def _plus(counts: Mapping[str, int], key: str, count: int) -> dict[str, int]:
    return {**counts, key: counts.get(key, 0) + count}
