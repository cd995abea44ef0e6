"""What a pool asks of proofs, and what a validator measured: thresholds and figures, no arithmetic (`proofs`)."""

from typing import ClassVar, Literal, Self

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_finite

Scheme = Literal["sketch", "toploc"]

CHUNK_TOKENS = 32
"""Completion tokens that one commitment covers (DESIGN section 5; the published TOPLOC format's default)."""


class Thresholds(Record, frozen=True, kw_only=True):
    """What honest work stays below, for one model and pair of hardware classes; from `farflung calibrate`.

    Each is compared with a figure of one rollout, except `activation_submission`, which is over all chunks of a
    submission. A figure above its threshold is a rejection.
    """

    activation_chunk: float
    """Distance of one chunk's commitment from the verifier's own, in the scheme's unit (`proofs.scheme`)."""
    activation_submission: float
    """Root mean square of the distances of all chunks."""
    max_margin: float
    """Largest score by which a token that was not drawn could have been chosen instead (`proofs.margins`)."""
    mean_margin: float
    """Sum of margins per token of a submission."""
    max_likeliness: float
    """Standard deviations by which a rollout may be likelier than what this policy draws. The other side is not tested:
    a rare draw of a sure policy is many of them away, and honest."""
    logprob_error: float
    """Largest difference between a claimed logprob and the verifier's, at one token."""

    def __post_init__(self) -> None:
        values = [getattr(self, name) for name in self.__struct_fields__]
        require_finite("thresholds", values)
        if min(values) < 0:
            raise ValueError(f"thresholds are {values}: each must be at least 0")


class Expected(Record, frozen=True, kw_only=True):
    """What honest submissions have, the worst kind of machine counted, with room (`validation.drift`).

    Means of order 4, with which a node's submissions are weighed together.
    """

    distance: float
    """As `Thresholds.activation_submission`."""
    mean_margin: float

    def __post_init__(self) -> None:
        require_finite("expectations", (self.distance, self.mean_margin))
        if min(self.distance, self.mean_margin) <= 0:
            raise ValueError(f"expected are {self.distance} and {self.mean_margin}: each must be above 0")


class ProofRules(Record, frozen=True, kw_only=True):
    """What a submission of a proven pool has to carry, and how far it may be off."""

    DOMAIN: ClassVar[str] = "farflung/proof-rules/1"

    scheme: Scheme = "sketch"
    reject: Thresholds
    slash: Thresholds
    """Wider: what lies between the two is not paid and not slashed."""
    expected: Expected | None = None
    """None = submissions of a node are not weighed together."""

    def __post_init__(self) -> None:
        for name in Thresholds.__struct_fields__:
            inner, outer = getattr(self.reject, name), getattr(self.slash, name)
            if outer < inner:
                raise ValueError(f"{name}: rejected above {inner} and slashed above {outer}, which must not be less")


DEFAULT_RULES = ProofRules(
    reject=Thresholds(
        activation_chunk=0.030,
        activation_submission=0.024,
        max_margin=0.5,
        mean_margin=0.004,
        max_likeliness=6.0,
        logprob_error=0.3,
    ),
    slash=Thresholds(
        activation_chunk=0.2,
        activation_submission=0.1,
        max_margin=3.0,
        mean_margin=0.05,
        max_likeliness=8.0,
        logprob_error=2.0,
    ),
    expected=Expected(distance=0.018, mean_margin=0.0015),
)
"""Where nothing was calibrated: wide enough for honest bf16 beside float32 (distance 0.0145 to 0.0153, margins up to
0.115 and 0.0006 in the mean, measured on SmolLM2-135M), narrower than int8 weights (0.037). `farflung calibrate` gives
better ones."""


class Resampled(Record, frozen=True, kw_only=True):
    """A rollout that was sampled again from its draw seed (`validator.sampling_again`)."""

    num_tokens: int
    """That were compared."""
    num_differences: int
    """Of these, tokens that came out differently."""
    max_margin: float
    """Largest score by which a claimed token lies below the one that came out."""

    def __post_init__(self) -> None:
        require_counts(num_tokens=self.num_tokens, num_differences=self.num_differences)
        require_finite("margin", (self.max_margin,))


class RolloutFigures(Record, frozen=True, kw_only=True):
    """One rollout beside the verifier's own computation."""

    group: int
    sample: int
    num_tokens: int
    """That the model drew."""
    activation_chunks: tuple[float, ...]
    """Distance of each chunk, in order (`proofs.scheme`)."""
    least_forgery: float = 0.0
    """Least distance of a chunk that bytes made without a model would have had. What lies near the thresholds says that
    they show nothing on this model."""
    max_margin: float
    sum_margin: float
    num_margins: int
    """Tokens that were not the verifier's own draw."""
    surprise: float
    """Standard deviations, negative where the text is likelier than a draw."""
    logprob_error: float
    logprobs: str = ""
    """Base64 of the verifier's float32 logprobs [T], little-endian, 0 where the token is not the model's."""
    resampled: Resampled | None = None
    """Of the one rollout of an audited submission."""

    @classmethod
    def nothing(cls, group: int, sample: int) -> Self:
        """Of a rollout that has no token of the model's."""
        return cls(
            group=group,
            sample=sample,
            num_tokens=0,
            activation_chunks=(),
            max_margin=0.0,
            sum_margin=0.0,
            num_margins=0,
            surprise=0.0,
            logprob_error=0.0,
        )

    def __post_init__(self) -> None:
        require_counts(group=self.group, sample=self.sample, num_tokens=self.num_tokens, num_margins=self.num_margins)
        values = (
            self.max_margin,
            self.sum_margin,
            self.surprise,
            self.logprob_error,
            self.least_forgery,
            *self.activation_chunks,
        )
        require_finite("figures", values)
