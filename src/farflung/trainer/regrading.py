"""The trainer looks for itself, now and then: a random share of accepted slots is graded once more before it is learned
from, and a slot whose validators gave other rewards is not.

Which ones nobody can foresee. Only what validators could grade is graded here, so nothing takes longer than it took
them; episodes of several turns are not played again. What our own grader fails at says nothing. Knows no network.
"""

from collections.abc import Callable, Sequence
from random import SystemRandom

from farflung.envs.base import Environment, graders_of, is_reproducible
from farflung.envs.episode import Episodic
from farflung.envs.graders.registry import are_reproducible
from farflung.errors import FarflungError
from farflung.model.tokenizer import Tokenizer
from farflung.rl.types import RolloutGroup

REGRADED_DIFFERENTLY = "regraded_differently"
"""Drop reason of an accepted slot whose rewards are not what they have to be."""


class Regrader:
    """
    Args:
        share: of accepted slots that are graded again.
        random: uniform in [0, 1); None = the system's, which nobody can foresee.
    """

    def __init__(
        self,
        environment: Environment,
        tokenizer: Tokenizer,
        share: float,
        random: Callable[[], float] | None = None,
    ) -> None:
        self._environment = environment
        self._tokenizer = tokenizer
        repeats = is_reproducible(environment) and are_reproducible(graders_of(environment))
        can_grade = repeats and not isinstance(environment, Episodic)
        self._share = share if can_grade else 0.0
        self._random = random or SystemRandom().random
        self.num_regraded = 0
        """Slots so far."""

    def problem(self, groups: Sequence[RolloutGroup]) -> str | None:
        """What is wrong with the rewards of a slot, if it is one that is looked at; None if nothing is."""
        if self._random() >= self._share:
            return None
        self.num_regraded += 1
        return next((found for group in groups if (found := self._wrong(group)) is not None), None)

    def _wrong(self, group: RolloutGroup) -> str | None:
        if group.task_index is None:
            return None
        for rollout, reward in zip(group.rollouts, group.rewards, strict=True):
            if reward is None:
                continue
            try:
                task = self._environment.task("train", group.task_index, rollout.target_length)
                own = self._environment.grade(task, self._tokenizer.decode(rollout.completion_tokens.tolist())).reward
            except FarflungError:
                return None
            if own != reward:
                return f"rollout ({rollout.group}, {rollout.sample}) is worth {own}, its validators said {reward}"
        return None
