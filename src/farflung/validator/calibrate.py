"""Thresholds for one model: honest work and impostors sampled, examined as a validator does, and told apart.

    honest       the model itself, sampled in other batches, and examined with bfloat16 activations
    impostors    other weights (`validator.impostors`), other draws, other temperatures

Each submission is a few rollouts of one prompt. What is measured holds for the machines that it was measured with:
other kernels and devices are another calibration. Does not know pools or files.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from farflung.engine.base import Completion, GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.weights import load_hf_state
from farflung.proofs.calibration import SLASH_FACTOR, Separation, separate
from farflung.proofs.scheme import build
from farflung.validation.drift import expectation
from farflung.validation.proof_checks import mean_margin, submission_distance
from farflung.validator.impostors import IMPOSTORS, State, rounding_to_bfloat16
from farflung.validator.prefill import MICRO_BATCH_TOKENS, Claim, PrefillParams, figures_of
from farflung.wire.proof import ProofRules, RolloutFigures, Scheme, Thresholds
from farflung.wire.rollout import Rollout

SEED, OTHER_SEED = b"farflung/calibration/1".ljust(32, b"\0"), b"farflung/calibration/2".ljust(32, b"\0")
FLOORS = Thresholds(
    activation_chunk=0.01,
    activation_submission=0.005,
    max_margin=0.02,
    mean_margin=0.0005,
    max_likeliness=6.0,
    logprob_error=0.01,
)
"""Where honest work agrees exactly, on one machine, other machines of its kind will not quite."""
COMPUTATION, DRAWING = "computation", "drawing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The submissions of one kind of worker."""

    name: str
    is_honest: bool
    cheats_at: str = ""
    """`COMPUTATION`, `DRAWING`, or empty for honest work."""
    submissions: tuple[tuple[RolloutFigures, ...], ...]

    def figure(self, name: str) -> list[float]:
        """One figure of each submission, by the name of its threshold."""
        return [_FIGURES[name](submission) for submission in self.submissions]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What was measured, and the rules that follow."""

    spreads: tuple[Spread, ...]
    separations: Mapping[str, Separation]
    rules: ProofRules

    @property
    def least_forgery(self) -> float:
        """Least distance of what was made without a model, in any chunk of any honest submission."""
        honest = [figures for spread in self.spreads if spread.is_honest for figures in spread.submissions]
        return min((each.least_forgery for figures in honest for each in figures if each.num_tokens), default=math.inf)


_FIGURES: Mapping[str, Callable[[Sequence[RolloutFigures]], float]] = {
    "activation_chunk": lambda found: max((max(each.activation_chunks, default=0.0) for each in found), default=0.0),
    "activation_submission": submission_distance,
    "max_margin": lambda found: max((each.max_margin for each in found), default=0.0),
    "mean_margin": mean_margin,
    "max_likeliness": lambda found: max((-each.surprise for each in found), default=0.0),
    "logprob_error": lambda found: max((each.logprob_error for each in found), default=0.0),
}
_MEANT_FOR = {
    "activation_chunk": COMPUTATION,
    "activation_submission": COMPUTATION,
    "max_margin": DRAWING,
    "mean_margin": DRAWING,
}


@dataclass(kw_only=True, eq=False)
class Bench:
    """A model with prompts, and how a pool would sample it."""

    config: AnyConfig
    state: State
    prompts: Sequence[Sequence[int]]
    """Token ids; one submission each."""
    params: SamplingParams
    num_samples: int
    """Rollouts of a submission."""
    scheme: Scheme = "sketch"

    def __post_init__(self) -> None:
        self._verifier = self._decoder(self.config, self.state)
        self._prefill = PrefillParams(
            temperature=self.params.temperature,
            reserved_token_ids=self.params.reserved_token_ids,
            scheme=self.scheme,
        )

    def spreads(self) -> Iterator[Spread]:
        """One kind of worker after another, the honest ones first."""
        own = self.sampled()
        yield self._spread("itself", self.rows(own), is_honest=True)
        few = self.sampled(max_batch_rows=3)
        yield self._spread("in small batches", self.rows(few), is_honest=True)
        with rounding_to_bfloat16(self._verifier):
            rounded = self._spread("with bfloat16 activations", self.rows(own), is_honest=True)
        yield rounded
        for name, impostor in IMPOSTORS.items():
            config, state = impostor(self.config, self.state)
            yield self._spread(name, self.rows(self.sampled(config, state)), cheats_at=COMPUTATION)
        other = self.sampled(draw_seed=OTHER_SEED)
        yield self._spread("draws of one's own", self.rows(other), cheats_at=DRAWING)
        for factor in (0.9, 0.7):
            cooler = replace(self.params, temperature=self.params.temperature * factor)
            made = self.sampled(params=cooler)
            yield self._spread(f"temperature x {factor}", self.rows(made), cheats_at=DRAWING)

    def sample(self, *, max_batch_rows: int = 64) -> list[Rollout]:
        """Honest work, as a worker hands it in."""
        return self.rows(self.sampled(max_batch_rows=max_batch_rows))

    def examined(
        self, rows: Sequence[Rollout], *, rounded: bool = False, micro_batch_tokens: int = MICRO_BATCH_TOKENS
    ) -> list[tuple[RolloutFigures, ...]]:
        """Figures of each submission; beside bfloat16 activations if `rounded`."""
        with rounding_to_bfloat16(self._verifier) if rounded else nullcontext():
            return self._submissions(rows, replace(self._prefill, micro_batch_tokens=micro_batch_tokens))

    def _decoder(self, config: AnyConfig, state: State) -> AnyDecoder:
        decoder = build_decoder(config).requires_grad_(False)
        load_hf_state(decoder, state)
        return decoder

    def sampled(
        self,
        config: AnyConfig | None = None,
        state: State | None = None,
        *,
        params: SamplingParams | None = None,
        draw_seed: bytes = SEED,
        max_batch_rows: int = 64,
    ) -> list[Completion]:
        """What another model, or this one, draws on these prompts, with its states."""
        config, state = config or self.config, self.state if state is None else state
        engine = TorchEngine(config, max_batch_rows=max_batch_rows, num_threads=torch.get_num_threads())
        engine.load_weights(state, 0)
        requests = [
            GroupRequest(group=group, prompt_tokens=np.array(prompt, dtype=np.int32), num_samples=self.num_samples)
            for group, prompt in enumerate(self.prompts)
        ]
        return engine.generate(requests, params or self.params, draw_seed, with_hidden=True)

    def rows(self, made: Sequence[Completion]) -> list[Rollout]:
        """As a worker hands them in, under the lease's seed."""
        rows = []
        for each in made:
            assert each.hidden is not None
            rows.append(
                Rollout(
                    env="",
                    task_id="",
                    group=each.group,
                    sample=each.sample,
                    prompt_tokens=np.array(self.prompts[each.group], dtype=np.int32),
                    completion_tokens=each.tokens,
                    logprobs=each.logprobs,
                    stop_reason=each.stop_reason,
                    policy_version=0,
                    proof=build(self.scheme, torch.from_numpy(each.hidden), SEED, each.group, each.sample),
                )
            )
        return rows

    def _spread(self, name: str, rows: Sequence[Rollout], *, is_honest: bool = False, cheats_at: str = "") -> Spread:
        submissions = self._submissions(rows, self._prefill)
        return Spread(name=name, is_honest=is_honest, cheats_at=cheats_at, submissions=tuple(submissions))

    def _submissions(self, rows: Sequence[Rollout], params: PrefillParams) -> list[tuple[RolloutFigures, ...]]:
        claims = [
            Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=SEED, slot=row.group) for row in rows
        ]
        found = figures_of(self._verifier, claims, params)
        return [tuple(each for each in found if each.group == group) for group in range(len(self.prompts))]


def calibrated(spreads: Sequence[Spread], scheme: Scheme = "sketch") -> Calibration:
    """Thresholds from what was measured with this scheme.

    Raises:
        ValueError: nothing honest was.
    """
    separations = {}
    honest_spreads = [spread for spread in spreads if spread.is_honest]
    for name in Thresholds.__struct_fields__:
        honest = [figure for spread in honest_spreads for figure in spread.figure(name)]
        meant = [spread for spread in spreads if spread.cheats_at and spread.cheats_at == _MEANT_FOR.get(name)]
        impostors = [figure for spread in meant for figure in spread.figure(name)]
        separations[name] = separate(honest, impostors, floor=getattr(FLOORS, name))
    reject = Thresholds(**{name: found.threshold for name, found in separations.items()})
    slash = Thresholds(**{name: SLASH_FACTOR * found.threshold for name, found in separations.items()})
    kinds = [
        list(zip(*map(spread.figure, ("activation_submission", "mean_margin")), strict=True))
        for spread in honest_spreads
    ]
    rules = ProofRules(scheme=scheme, reject=reject, slash=slash, expected=expectation(kinds))
    return Calibration(spreads=tuple(spreads), separations=separations, rules=rules)
