"""What the trainer's loop asks of its surroundings: where rollouts come from, and who is told of new versions.

Two surroundings exist: a pool with a coordinator (`trainer.feed`, `trainer.publisher`), and sampler processes of our
own (`farflung.local`).
"""

from collections.abc import Iterable
from typing import Protocol

from farflung.broadcast.publish import PreparedPolicy
from farflung.rl.types import Batch
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.samples import TrainingSet
from farflung.wire.batch import BatchItem, SlotDrop
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Publication


class RolloutSource(Protocol):
    """Brings finished slots into the trainer's inbox."""

    async def close_absent(self) -> None:
        """Before `run`: close slots that a run which goes on would wait for in vain."""
        ...

    async def run(self) -> None:
        """Until the run is over or asked to stop; then nothing more comes into the inbox, which is stopped."""
        ...

    def items(self, batch: Batch, training: TrainingSet) -> tuple[BatchItem, ...]:
        """What the batch record says of the submissions behind a batch."""
        ...

    def published(self, slots: Iterable[int]) -> None:
        """A version is out whose batch record says that these slots were trained on or dropped."""
        ...


class PolicyTarget(Protocol):
    """Takes new versions."""

    last: Publication | None
    """The newest version that is out."""

    @property
    def policy_version(self) -> int:
        """Of the newest publication; -1 before the first."""
        ...

    def prepare(
        self,
        policy: PolicyBase,
        *,
        optimizer_step: int,
        now_ms: int,
        items: tuple[BatchItem, ...] | None,
        drops: tuple[SlotDrop, ...],
        plan: CurriculumPlan | None = None,
    ) -> tuple[Publication, PreparedPolicy]:
        """Blocking; the next version, ready to be sent. `items` is None for the first, which no batch made."""
        ...

    async def begin(self) -> None:
        """A new run."""
        ...

    async def resume(self, ours: Publication, policy: PolicyBase) -> None:
        """A run that goes on with the version of a checkpoint, and the policy restored from it."""
        ...

    async def send(self, publication: Publication, prepared: PreparedPolicy) -> None:
        """Make the version known; idempotent."""
        ...

    async def finish(self) -> None:
        """No version follows."""
        ...
