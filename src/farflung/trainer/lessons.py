"""From a batch to the samples of its optimizer steps: select, shape, score, estimate.

    batch -> groups with signal, rewards shaped -> advantages -> samples
                         KL in the reward or in the loss:  logprobs of the reference policy, one pass
                         learning from top entropy alone:  entropies of the policy, one pass

Passes that nobody asked for are not made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from farflung.rl.kl import kl_in_reward
from farflung.rl.samples import NO_PENALTIES, training_samples
from farflung.rl.shaping import ShapingParams
from farflung.rl.top_entropy import keep_top_entropy
from farflung.rl.turns import Key
from farflung.rl.types import Batch, RolloutGroup, TrainingSample
from farflung.trainer.batch_metrics import batch_metrics, sample_metrics
from farflung.trainer.config import ObjectiveConfig
from farflung.trainer.objective import reward_estimator
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.reference import KlReference
from farflung.trainer.samples import TrainingSet, select, training_set_of
from farflung.trainer.scoring import score
from farflung.trainer.step import StepParams


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Lessons:
    """What turns batches into training sets."""

    policy: PolicyBase
    config: ObjectiveConfig
    shaping: ShapingParams
    params: StepParams
    reference: KlReference | None
    """There is one if the settings have a KL term."""

    def of(self, batch: Batch, *, kl_coefficient: float) -> tuple[TrainingSet, dict[str, float]]:
        """(training set, its figures).

        Args:
            kl_coefficient: of KL in the reward, for this version.
        """
        selection = select(batch, judged_on=self.config.signal, shaping=self.shaping)
        samples = self._samples(selection.groups)
        metrics = batch_metrics(
            batch, selection, is_shaped=self.shaping.is_on, is_aimed=self.shaping.length is not None
        )
        metrics |= sample_metrics(selection.groups, samples)
        if self.reference is not None and samples:
            samples = self.reference.annotate(samples, self.params)
            if self.config.kl.placement == "reward":
                samples, metrics["kl"] = self._with_kl_in_reward(selection.groups, samples, kl_coefficient)
        if self.config.entropy.top_share < 1 and samples:
            samples = keep_top_entropy(samples, self._entropies(samples), self.config.entropy.top_share)
        return training_set_of(batch, selection, samples), metrics

    def _samples(
        self, groups: Sequence[RolloutGroup], penalties: Mapping[Key, NDArray[np.floating]] = NO_PENALTIES
    ) -> list[TrainingSample]:
        return training_samples(
            groups,
            normalize=self.config.normalize,
            mask_truncated=self.config.mask_truncated,
            penalties=penalties,
        )

    def _with_kl_in_reward(
        self, groups: Sequence[RolloutGroup], samples: Sequence[TrainingSample], coefficient: float
    ) -> tuple[list[TrainingSample], float]:
        """(samples with other advantages, mean KL of a loss token); of the policy that sampled: acts are its own."""
        kls = self._kls(samples)
        penalties = {sample.key: coefficient * kl_T for sample, kl_T in zip(samples, kls, strict=True)}
        charged = [
            replace(after, ref_logprobs=before.ref_logprobs)
            for before, after in zip(samples, self._samples(groups, penalties), strict=True)
        ]
        num_tokens = sum(sample.num_loss_tokens for sample in samples)
        return charged, sum(float(kl_T.sum()) for kl_T in kls) / num_tokens

    def _kls(self, samples: Sequence[TrainingSample]) -> list[NDArray[np.float64]]:
        """[T] of each sample at loss tokens, 0 elsewhere."""
        ref = [sample.ref_logprobs for sample in samples if sample.ref_logprobs is not None]
        assert len(ref) == len(samples), "the reference has looked at every sample"
        kl_N = kl_in_reward(
            torch.from_numpy(np.concatenate([sample.behaviour_logprobs for sample in samples])).double(),
            torch.from_numpy(np.concatenate(ref)).double(),
            torch.from_numpy(np.concatenate([sample.loss_mask for sample in samples])),
            reward_estimator(self.config.kl),
        ).numpy()
        return np.split(kl_N, np.cumsum([len(each) for each in ref])[:-1])

    def _entropies(self, samples: Sequence[TrainingSample]) -> list[NDArray[np.float32]]:
        scores = score(
            self.policy.published,
            samples,
            temperature=self.params.temperature,
            reserved_token_ids=self.params.reserved_token_ids,
            micro_batch_tokens=self.params.micro_batch_tokens,
        )
        return [each.entropies for each in scores]
