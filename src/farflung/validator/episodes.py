"""The episodes of a submission, played again with the tokens that were claimed.

    read     rollouts -> one transcript each: what is the model's in it, and what the environment would not have said
    grade    rollouts -> rewards, of the same episodes

What an environment raises on the way ends its episode, for whoever samples as for whoever replays; such an episode has
no reward. Runs in the judging process; does not know files or submissions.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from farflung.envs.base import Grade
from farflung.envs.episode import EpisodeGrade
from farflung.envs.playing import Episode, episode_result
from farflung.envs.replay import Claim, replay
from farflung.validation.case import JudgeRules, Transcript
from farflung.validator.progress import FINISHING
from farflung.wire.rollout import Rollout
from farflung.wire.task import Task
from farflung.wire.verdict import RewardResult

UNKNOWN = Transcript(spans=())
"""Of an episode that could not be replayed: it has no reward, and nothing is held against it."""


class Episodes:
    """`read`, then `grade`, each once."""

    def __init__(
        self,
        new_episode: Callable[[Task], Episode],
        rules: JudgeRules,
        tasks: Sequence[Task],
        given_up: Mapping[int, str],
        begin: Callable[[int], None],
    ) -> None:
        """
        Args:
            tasks: one per group.
            given_up: positions of rollouts whose episodes are not to be played again -> what went wrong with that.
            begin: told the position of an episode's first rollout before it is played or graded.
        """
        self._new_episode, self._rules, self._tasks = new_episode, rules, tasks
        self._given_up, self._begin = given_up, begin
        self._num_agents = rules.pool.environment.num_agents
        self._played: dict[int, Episode] = {}
        """By the position of its first rollout."""
        self.faults: Counter[str] = Counter()
        """Kind -> rollouts without a reward for it."""
        self.first_fault = ""

    def read(self, rollouts: Sequence[Rollout]) -> list[Transcript]:
        """One per rollout; those of an episode lie side by side, in order of agents."""
        transcripts = list[Transcript]()
        for position in range(0, len(rollouts), self._num_agents):
            transcripts += self._read(position, rollouts[position : position + self._num_agents])
        return transcripts

    def grade(self, rollouts: Sequence[Rollout]) -> list[RewardResult]:
        """One per rollout."""
        results = list[RewardResult]()
        for position in range(0, len(rollouts), self._num_agents):
            results += self._grade(position, rollouts[position : position + self._num_agents])
        self._begin(FINISHING)
        return results

    def _read(self, position: int, rows: Sequence[Rollout]) -> list[Transcript]:
        if position in self._given_up:
            return [UNKNOWN] * len(rows)
        self._begin(position)
        episode = self._new_episode(self._tasks[rows[0].group])
        claims = [Claim(prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens) for row in rows]
        rules = self._rules
        if problem := replay(episode, claims, rules.eos_token_ids, rules.reserved_token_ids):
            return [Transcript(spans=(), problem=problem)] * len(rows)
        self._played[position] = episode
        return [Transcript(spans=view.spans) for view in episode.views]

    def _grade(self, position: int, rows: Sequence[Rollout]) -> list[RewardResult]:
        episode = self._played.get(position)
        if episode is None:
            self.faults[self._given_up[position]] += len(rows)
            return [RewardResult(group=row.group, sample=row.sample, reward=None) for row in rows]
        self._begin(position)
        try:
            grades = episode.grades(self._rules.pool.max_abs_reward)
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            kind = episode.fault_kind or type(error).__name__
            self.faults[kind] += len(rows)
            self.first_fault = self.first_fault or f"{kind}: {error} (task {episode.task.task_id})"[:500]
            grades = (EpisodeGrade(grade=Grade(reward=None)),) * len(rows)
        return [
            episode_result(row.group, row.sample, view.spans, grade)
            for row, view, grade in zip(rows, episode.views, grades, strict=True)
        ]
