"""The policy that a KL term keeps close to: version 0 of the run, or a model folder. It never changes.

    version 0   taken from the policy before its first optimizer step, written to `reference/` in the run's folder
    folder      read when the trainer starts

A checkpoint remembers the sha256 of the reference's bf16 weights; a trainer that goes on reads them again and refuses
others. Costs a second copy of the weights in the precision of the forward pass. Knows no objective.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from torch import Tensor

from farflung.errors import OurFault, UserError
from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.folder import load_folder, save_folder
from farflung.model.weights import load_hf_state, publishable_state, to_safetensors_bytes
from farflung.rl.types import TrainingSample
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.scoring import score
from farflung.trainer.step import StepParams
from farflung.wire.canonical import sha256_hex

REFERENCE_FOLDER = "reference"
DIGEST = "sha256"


class KlReference(Protocol):
    """One per trainer that has a KL term; a component of its checkpoints."""

    def annotate(self, samples: Sequence[TrainingSample], params: StepParams) -> list[TrainingSample]:
        """The samples with the reference's logprobs, at the temperature of the step."""
        ...

    def begin(self, optimizer_step: int) -> None:
        """Be there, and durable, before anything is learned."""
        ...

    def snapshot(self) -> dict[str, object]:
        """As `trainer.checkpoint.Component`."""
        ...

    def restore(self, snapshot: dict[str, object]) -> None:
        """As `trainer.checkpoint.Component`."""
        ...


class Reference:
    """Implements `KlReference` with a decoder of its own."""

    def __init__(self, policy: PolicyBase, folder: Path, policy_files: Mapping[str, bytes], *, is_given: bool) -> None:
        """
        Args:
            policy: whose device and precision the reference has.
            folder: of the reference; made here from version 0 unless it is given.
            policy_files: tokenizer files, for a folder that is made here.
            is_given: a person named the folder.

        Raises:
            UserError: the folder that was given is no model, or one with another vocabulary.
        """
        self._policy = policy
        self._folder = folder
        self._policy_files = dict(policy_files)
        self._decoder: AnyDecoder | None = None
        self._sha256 = ""
        self._is_given = is_given
        if is_given:
            self._read()

    def annotate(self, samples: Sequence[TrainingSample], params: StepParams) -> list[TrainingSample]:
        """The samples with the reference's logprobs, at the temperature of the step."""
        assert self._decoder is not None, "the reference is there before the first samples are"
        return with_reference(self._decoder, samples, params)

    def begin(self, optimizer_step: int) -> None:
        """Be there: the policy that has not learned yet is version 0. Durable before anything is learned.

        Raises:
            UserError: version 0 is gone.
            OurFault: the disk refuses.
        """
        if self._decoder is not None:
            return
        if optimizer_step:
            raise no_version_zero(optimizer_step)
        state = self._policy.published_state()
        save_folder(self._folder, self._policy.config, state, self._policy_files)
        self._take(self._policy.config, state)

    def snapshot(self) -> dict[str, object]:
        """As `trainer.checkpoint.Component`; empty before there is a reference."""
        return {DIGEST: self._sha256} if self._sha256 else {}

    def restore(self, snapshot: dict[str, object]) -> None:
        """The same reference again.

        Raises:
            UserError: the weights in its folder are others.
            OurFault: the run's own copy is gone.
        """
        expected = snapshot.get(DIGEST)
        if expected is None:
            return
        if not self._is_given and not self._folder.is_dir():
            raise OurFault(f"{self._folder} is gone, which held the reference of the KL term: restore it from a backup")
        if self._decoder is None:
            self._read()
        if self._sha256 != expected:
            raise UserError(
                f"the weights in {self._folder} are not those of the reference that this run began with (sha256 "
                f"{self._sha256[:16]}, not {str(expected)[:16]}): put them back, or start another run"
            )

    def _read(self) -> None:
        loaded = load_folder(self._folder)
        if loaded.config.vocab_size != self._policy.config.vocab_size:
            raise UserError(
                f"the reference in {self._folder} has {loaded.config.vocab_size} token ids, the model that is trained "
                f"{self._policy.config.vocab_size}: trainer.objective.kl.reference must have the same tokenizer"
            )
        self._take(loaded.config, publishable_state(loaded.state))

    def _take(self, config: AnyConfig, state: Mapping[str, Tensor]) -> None:
        published = self._policy.published
        decoder = build_decoder(
            config,
            dtype=published.lm_head_weight.dtype,
            device=self._policy.device,
            may_be_slow=True,
        )
        load_hf_state(decoder, state)
        self._decoder = decoder.requires_grad_(requires_grad=False).eval()
        self._sha256 = sha256_hex(to_safetensors_bytes(state))


def with_reference(decoder: AnyDecoder, samples: Sequence[TrainingSample], params: StepParams) -> list[TrainingSample]:
    """The samples with the logprobs that `decoder` gives them, at the temperature of the step."""
    scores = score(
        decoder,
        samples,
        temperature=params.temperature,
        reserved_token_ids=params.reserved_token_ids,
        micro_batch_tokens=params.micro_batch_tokens,
    )
    return [replace(sample, ref_logprobs=each.logprobs) for sample, each in zip(samples, scores, strict=True)]


def no_version_zero(optimizer_step: int) -> UserError:
    """For a run that has begun without a KL term."""
    return UserError(
        f"the reference of the KL term is version 0 of this run, whose weights were not kept: it has made "
        f"{optimizer_step} optimizer steps without one; name a folder with trainer.objective.kl.reference, or "
        "start another run"
    )
