"""The policy that a KL term keeps close to, where an adapter is trained: the same weights with the first adapter.

Version 0 is the base with the adapter as it was before its first optimizer step: without a warm start the base itself.
No second copy of any weights: its numbers, which are few, take the place of the newest ones for a pass. They are
written to `reference/` in the run's folder; a checkpoint remembers their sha256. Knows no objective.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from farflung.errors import OurFault, UserError
from farflung.model.adapter_files import Adapter, load_adapter_folder, save_adapter_folder, weights_bytes
from farflung.rl.types import TrainingSample
from farflung.trainer.lora_policy import LoraPolicy
from farflung.trainer.reference import DIGEST, no_version_zero, with_reference
from farflung.trainer.step import StepParams
from farflung.wire.canonical import sha256_hex


class LoraReference:
    """Implements `trainer.reference.KlReference`; a component of checkpoints."""

    def __init__(self, policy: LoraPolicy, folder: Path) -> None:
        """
        Args:
            folder: of the first adapter; made here.
        """
        self._policy = policy
        self._folder = folder
        self._masters: Mapping[str, Tensor] | None = None
        self._sha256 = ""

    def annotate(self, samples: Sequence[TrainingSample], params: StepParams) -> list[TrainingSample]:
        """The samples with the reference's logprobs, at the temperature of the step."""
        assert self._masters is not None, "the reference is there before the first samples are"
        with self._policy.as_it_was(self._masters) as decoder:
            return with_reference(decoder, samples, params)

    def begin(self, optimizer_step: int) -> None:
        """Be there: the adapter that has not learned yet is version 0's. Durable before anything is learned.

        Raises:
            UserError: version 0 is gone.
            OurFault: the disk refuses.
        """
        if self._masters is not None:
            return
        if optimizer_step:
            raise no_version_zero(optimizer_step)
        adapter = Adapter(spec=self._policy.lora, state=self._policy.masters_state())
        save_adapter_folder(self._folder, adapter)
        self._take(adapter.state)

    def snapshot(self) -> dict[str, object]:
        """As `trainer.checkpoint.Component`; empty before there is a reference."""
        return {DIGEST: self._sha256} if self._sha256 else {}

    def restore(self, snapshot: dict[str, object]) -> None:
        """The same reference again.

        Raises:
            UserError: the adapter in its folder is another.
            OurFault: it is gone.
        """
        expected = snapshot.get(DIGEST)
        if expected is None:
            return
        if not self._folder.is_dir():
            raise OurFault(f"{self._folder} is gone, which held the reference of the KL term: restore it from a backup")
        self._take(load_adapter_folder(self._folder, self._policy.config).state)
        if self._sha256 != expected:
            raise UserError(
                f"the adapter in {self._folder} is not that of the reference that this run began with (sha256 "
                f"{self._sha256[:16]}, not {str(expected)[:16]}): put it back, or start another run"
            )

    def _take(self, masters: Mapping[str, Tensor]) -> None:
        self._masters = {name: tensor.to(self._policy.device) for name, tensor in masters.items()}
        self._sha256 = sha256_hex(weights_bytes(masters))
