"""What the trainer tells of a run: rows of metrics.jsonl, sampled completions, groups that were not trained on.

This module decides nothing, and losing figures never stops a run.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farflung.evaluation.heldout import Evaluation
from farflung.rl.types import Batch
from farflung.telemetry.metrics import MetricsLog
from farflung.trainer.learner import Step

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"

_SLOT_DROPS = "buffer/dropped/"


class Figures:
    """Writes to the run's folder.

    Args:
        num_samples: completions written of each evaluation.
    """

    def __init__(self, run_folder: Path, num_samples: int) -> None:
        self._metrics = MetricsLog(run_folder / METRICS_FILE)
        self._samples_path = run_folder / SAMPLES_FILE
        self._num_samples = num_samples

    def warm_start(self, step: int, loss: float, accuracy: float) -> None:
        logger.info("warm start, step %d: accuracy %.3f", step, accuracy)
        self._metrics.write("warm_start", {"loss": loss, "accuracy": accuracy}, step=step)

    def evaluation(self, version: int, evaluation: Evaluation) -> None:
        """Of the policy that is about to be published as `version`."""
        logger.info("version %d: held-out accuracy %.3f (%d tasks)", version, evaluation.accuracy, evaluation.num_tasks)
        self._metrics.write(
            "eval",
            {
                "accuracy": evaluation.accuracy,
                "mean_reward": evaluation.mean_reward,
                "mean_length": evaluation.mean_length_tokens,
                "num_tasks": evaluation.num_tasks,
                "num_ungraded": evaluation.num_ungraded,
                **{f"accuracy/{name}": accuracy for name, accuracy in evaluation.accuracies.items()},
            },
            version=version,
        )
        self._append_samples(version, evaluation)

    def version(
        self,
        version: int,
        batch: Batch,
        step: Step,
        times_s: Mapping[str, float],
        drops: Mapping[str, int],
        steering: Mapping[str, float] = {},
    ) -> None:
        """Of a version that is about to be published; of several rows of one version the last counts."""
        histogram = {str(versions): count for versions, count in batch.staleness.counts.items()}
        self._metrics.write(
            "train",
            {**step.metrics, **steering, **times_s, "staleness/histogram": histogram, "drops": drops},
            version=version,
        )

    def rollback(self, version: int, reason: str, evaluation: Evaluation | None = None) -> None:
        """The step after `version` was refused; its evaluation is no point of the run's curve."""
        accuracy = {} if evaluation is None else {"accuracy": evaluation.accuracy}
        self._metrics.write("rollback", {"reason": reason, **accuracy}, version=version)

    def accepted_changes(self, version: int, changes: Sequence[str]) -> None:
        """Settings, data or numerics with which the run goes on after `version`, other than before."""
        self._metrics.write("changes", {"changes": "; ".join(changes)}, version=version)

    def progress(self, version: int, totals: Mapping[str, float | int | Mapping[str, int]]) -> None:
        """Totals of the run, when the trainer ends."""
        self._metrics.write("progress", totals, version=version)

    def _append_samples(self, version: int, evaluation: Evaluation) -> None:
        rows = [
            {
                "version": version,
                "task_id": rollout.task.task_id,
                "prompt": "".join(message.content for message in rollout.task.messages),
                "completion": rollout.completion,
                "reward": rollout.grade.reward,
                "correct": rollout.grade.correct,
                "target_length": rollout.task.target_length,
            }
            for rollout in evaluation.rollouts[: self._num_samples]
        ]
        try:
            with self._samples_path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as error:
            logger.warning("samples are lost: %s: %s", self._samples_path, error)


class Laps:
    """Seconds that the parts of versions took, one after another without a gap.

    Args:
        now_s: monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._last_s = now_s()
        self._times_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """The part that began at the end of the one before ends now."""
        now_s, name = self._now_s(), f"time/{part}_s"
        self._times_s[name] = self._times_s.get(name, 0.0) + now_s - self._last_s
        self._last_s = now_s

    def take(self) -> dict[str, float]:
        """Metric name -> seconds of the parts since the last call, with the sum as `time/step_s`."""
        times_s, self._times_s = self._times_s, {}
        return {"time/step_s": sum(times_s.values()), **times_s}


def drops(without_gradient: Mapping[str, int], buffer: Mapping[str, int], groups_per_slot: int) -> dict[str, int]:
    """Reason -> groups of accepted slots that this trainer did not train on, since the run began.

    Slots that ended without being accepted are the coordinator's to count: it has seen all of them.

    Args:
        without_gradient: reason -> groups of trained slots.
        buffer: `ExperienceBuffer.metrics()`, which counts whole slots.
    """
    counts = Counter(without_gradient)
    for name, num_slots in buffer.items():
        if name.startswith(_SLOT_DROPS):
            counts[name.removeprefix(_SLOT_DROPS)] += num_slots * groups_per_slot
    return dict(counts)
