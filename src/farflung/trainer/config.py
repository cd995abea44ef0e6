"""Settings of the role that learns."""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from farflung.config.base import Config
from farflung.wire.pool import EnvArg

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MAX_FRESH_WEIGHTS = 2_000_000_000
"""Of a model that is made here; with gradients and moments it takes sixteen bytes a weight."""


class ModelSourceConfig(Config):
    """Where the first policy comes from."""

    path: str = Field("tiny", description='A Hugging Face folder, or "tiny" for a small character model made here.')
    hidden_size: int = Field(64, ge=8, le=65_536, description="tiny: width.")
    num_layers: int = Field(2, ge=1, le=1024, description="tiny: decoder layers.")
    num_heads: int = Field(4, ge=1, le=1024, description="tiny: attention heads.")
    intermediate_size: int = Field(192, ge=8, le=1 << 18, description="tiny: width of the gated MLP.")
    init_std: float = Field(0.05, gt=0, description="tiny: spread of the fresh weights; 0.05 suits widths near 64.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelSourceConfig":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size is {self.hidden_size} with num_heads {self.num_heads}: "
                f"hidden_size must be a multiple of 2 * num_heads = {2 * self.num_heads}"
            )
        return self

    @model_validator(mode="after")
    def _is_tiny(self) -> "ModelSourceConfig":
        num_weights = self.num_layers * self.hidden_size * (4 * self.hidden_size + 3 * self.intermediate_size)
        if num_weights > MAX_FRESH_WEIGHTS:
            raise ValueError(
                f"hidden_size {self.hidden_size}, num_layers {self.num_layers} and intermediate_size "
                f"{self.intermediate_size} make about {num_weights / 1e9:.3g} billion weights, at most "
                f"{MAX_FRESH_WEIGHTS / 1e9:g} billion can be made here: lower them, or give the folder of a trained "
                "model as path"
            )
        return self


class WarmStartConfig(Config):
    """Supervised steps on demonstrations before the first version is published."""

    max_steps: int = Field(0, ge=0, description="0 = no warm start.")
    target_accuracy: Share = Field(0.3, description="Stop at this held-out accuracy, of every member of a mixture.")
    batch_size: int = Field(64, ge=1, description="Demonstrations per step.")
    lr: float = Field(4e-3, gt=0, description="AdamW learning rate.")
    warmup_steps: int = Field(20, ge=0, description="Linear learning-rate warm-up, steps.")
    eval_every_steps: int = Field(5, ge=1, description="Steps between accuracy measurements.")


LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ParamValue = bool | int | float | str
GRPO_KEYS = ("anchor", "clip_low", "clip_high", "delta", "weight_low", "weight_high", "weight_mode")
"""Settings of `ObjectiveConfig` that belong to the default objective."""


class GuardConfig(Config):
    """What a token weighs when the sampling policy is far from the trainer's (see `rl.guards`)."""

    mode: Literal["off", "truncate", "mask", "band"] = Field(
        "off", description="What happens to weights out of bounds."
    )
    level: Literal["token", "sequence", "geometric"] = Field("token", description="What a weight is computed over.")
    judged_at: Literal["token", "sequence", "geometric", "k3"] | None = Field(
        None, description="What the bounds are compared with; none = the level of the weight."
    )
    low: float = Field(0.5, ge=0, lt=1, description="Lower bound of band.")
    high: float = Field(2.0, gt=0, description="Upper bound; at k3, of a sequence's mean k3 in nats.")
    only_negative: bool = Field(False, description="The bounds act on rollouts with negative advantage alone.")


class KlConfig(Config):
    """KL to a reference policy (see `rl.kl`)."""

    coefficient: float = Field(
        0.0,
        ge=0,
        description="0 = off. Else every sample is read once more, without a gradient, and a second copy of the "
        "weights stays in memory (4 bytes a weight, 2 in bfloat16; none with trainer.lora and without a folder).",
    )
    placement: Literal["loss", "reward"] = Field(
        "loss", description="In the loss it has a gradient; in the reward it lowers what advantages are made of."
    )
    estimator: Literal["k1", "k2", "k3", "k3+", "k3_unbiased"] | None = Field(
        None, description="none = k2 in the loss, k1 in the reward. k3_unbiased = k3 times the ratio, in the loss."
    )
    reference: str = Field("", description="Folder of the reference policy; empty = version 0 of this run.")
    target: float = Field(
        0.0, ge=0, description="KL per token that the coefficient is steered to; 0 = it stays as it is."
    )
    horizon: int = Field(10_000, ge=1, description="Samples over which it is steered by a fifth.")


class EntropyConfig(Config):
    """Entropy as a goal and as a choice of tokens (see `rl.entropy`, `rl.top_entropy`)."""

    coefficient: float = Field(0.0, ge=0, description="Weight of a bonus, or its first value with a target.")
    form: Literal["exact", "sampled"] = Field(
        "sampled", description="exact = gradient of the whole distribution's entropy; sampled = of the drawn token."
    )
    target: float = Field(
        0.0, ge=0, description="Nats per token below which the bonus acts and grows; 0 = it stays as it is."
    )
    change: float = Field(0.005, gt=0, description="Of the coefficient per version, with a target.")
    max_coefficient: float = Field(1.0, gt=0, description="With a target.")
    top_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the tokens, those of highest entropy, that are learned from; below 1 every sample is "
        "read once more.",
    )

    @model_validator(mode="after")
    def _change_fits(self) -> "EntropyConfig":
        if self.target and not max(self.change, self.coefficient) <= self.max_coefficient:
            raise ValueError(
                f"coefficient is {self.coefficient} and change {self.change} with max_coefficient "
                f"{self.max_coefficient}: neither may exceed it"
            )
        return self


class ObjectiveConfig(Config):
    """What the policy is trained on; the default is token-level two-sided clipped GRPO (see `rl.grpo`)."""

    name: str = Field(
        "grpo",
        description="grpo, dr_grpo, dapo, ppo, gspo, cispo, gepo, sapo, vespo, reinforce, dppo, ipo or "
        "package.module:name.",
    )
    params: dict[str, ParamValue] = Field({}, description="Parameters of an objective other than grpo.")
    guard: GuardConfig = GuardConfig()
    kl: KlConfig = KlConfig()
    entropy: EntropyConfig = EntropyConfig()
    anchor: Literal["decoupled", "behaviour"] = Field(
        "decoupled", description="Ratio against the trainer's own start-of-version policy, or the sampling policy."
    )
    clip_low: float = Field(0.2, gt=0, lt=1, description="Lower clip: ratio >= 1 - clip_low.")
    clip_high: float = Field(0.28, gt=0, description="Upper clip: ratio <= 1 + clip_high.")
    delta: float = Field(4.0, gt=1, le=1e6, description="Cap on the ratio of tokens with negative advantage.")
    weight_low: float = Field(0.5, ge=0, lt=1, description="Smallest off-policy correction weight that is used.")
    weight_high: float = Field(5.0, gt=1, description="Largest off-policy correction weight that is used.")
    weight_mode: Literal["mask", "clip"] = Field("mask", description="What happens to weights out of bounds.")
    normalize: Literal["none", "std", "batch_std", "rloo", "reinforce_pp", "reinforce_pp_baseline"] = Field(
        "none", description="Advantage estimator: what a reward is compared with and divided by."
    )
    mask_truncated: bool = Field(False, description="Rollouts cut off at the length limit carry no gradient.")
    signal: Literal["correct", "total"] = Field(
        "correct", description="Groups are dropped when all of this is equal; `total` when length is an objective."
    )

    @model_validator(mode="after")
    def _delta_exceeds_clip(self) -> "ObjectiveConfig":
        if self.delta <= 1 + self.clip_high:
            raise ValueError(
                f"delta is {self.delta} with clip_high {self.clip_high}: delta must exceed 1 + clip_high = "
                f"{1 + self.clip_high:g}; raise delta or lower clip_high"
            )
        return self

    @model_validator(mode="after")
    def _settings_reach_the_objective(self) -> "ObjectiveConfig":
        is_grpo = self.name == "grpo"
        for key in GRPO_KEYS:
            if is_grpo and key in self.params:
                raise ValueError(f"params has {key}, which has a setting of its own: set trainer.objective.{key}")
            if not is_grpo and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key} is {getattr(self, key)} but name is {self.name}, and {key} is for grpo alone: "
                    f"set trainer.objective.params.{key} if {self.name} has it"
                )
        if is_grpo and self.guard.mode == "truncate":
            raise ValueError(
                "guard.mode is truncate with name grpo, which bounds its weights already: use weight_low, weight_high "
                "and weight_mode clip, or name ppo with params.anchor decoupled; mask and band only drop, beside them"
            )
        return self

    @model_validator(mode="after")
    def _objective_can_be_made(self) -> "ObjectiveConfig":
        if ":" in self.name:
            if re.fullmatch(r"\w+(\.\w+)*:\w+", self.name) is None:
                raise ValueError(f"name is {self.name!r}: a custom objective is written package.module:function")
            return self
        extras = (self.params, self.entropy.coefficient, self.kl.coefficient, self.guard.mode != "off")
        if self.name == "grpo" and not any(extras):
            return self
        # Not at the top: settings are read by roles that start without torch, and the default's are checked above.
        from farflung.trainer.objective import make_objective

        make_objective(self, max_length_tokens=1)
        return self


class ShapingConfig(Config):
    """What the trainer adds to the rewards before advantages are made (see `rl.shaping`)."""

    length: Literal["none", "exact", "max", "clip"] = Field(
        "none", description="Reward for the length that the task asks for, in tokens; then set objective.signal total."
    )
    length_alpha: float = Field(0.0003, gt=0, description="exact, max: reward per token of distance.")
    length_weight: float = Field(1.0, gt=0, le=1, description="1 = the formula as it stands, 0.5 = half of its effect.")
    overlong_buffer_tokens: int = Field(
        0, ge=0, description="Tokens before the length limit over which a punishment grows; 0 = none."
    )
    overlong_factor: float = Field(1.0, gt=0, le=1e6, description="The punishment at the limit.")
    overlong_max_tokens: int = Field(0, ge=0, description="The limit; 0 = pool.max_completion_tokens.")


class AdapterConfig(Config):
    """Training an adapter beside weights that stay as they are (see `model.lora`, docs/lora.md)."""

    rank: int = Field(
        0, ge=0, le=4096, description="Of the product that is added to a matrix; 0 = all weights are trained."
    )
    alpha: float = Field(32.0, gt=0, le=1e6, description="What the adapter adds is multiplied by alpha / rank.")
    targets: tuple[LoraTarget, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="Projections of every layer that have an adapter.",
    )
    rank_stabilised: bool = Field(False, description="Scale by alpha / sqrt(rank) instead, for large ranks.")

    @model_validator(mode="after")
    def _targets_come_once(self) -> "AdapterConfig":
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets are {', '.join(self.targets)}: name each once")
        return self


class LoraConfig(AdapterConfig):
    """Training an adapter beside weights that stay as they are (see `model.lora`, docs/lora.md)."""

    publish: Literal["merged", "adapter"] = Field(
        "merged",
        description="What samplers fetch: whole weights each time, or these once and then the adapter alone.",
    )


class OptimizerConfig(Config):
    """How a gradient becomes new weights (see `trainer.schedule` for the shapes)."""

    name: Literal["adamw", "muon"] = Field(
        "adamw", description="muon = for matrices of the layers, AdamW for the rest."
    )
    lr: float = Field(1e-6, ge=0, le=1e3, description="Peak learning rate; 0 = weights never change.")
    schedule: Literal["constant", "linear", "cosine", "wsd"] = Field(
        "constant", description="Shape after the warm-up; wsd = constant, then a linear fall at the end."
    )
    warmup_steps: int = Field(5, ge=0, description="Linear learning-rate warm-up, optimizer steps.")
    final_share: Share = Field(0.0, description="linear, cosine, wsd: share of lr left at max_versions.")
    decay_share: float = Field(0.2, gt=0, le=1, description="wsd: share of the steps in which the rate falls.")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW first-moment decay.")
    beta2: float = Field(0.95, ge=0, lt=1, description="AdamW second-moment decay.")
    eps: float = Field(1e-8, gt=0, description="AdamW: added to the root of the second moment.")
    muon_momentum: float = Field(0.95, ge=0, lt=1, description="muon: decay of the momentum.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay on matrices.")
    decay_embeddings: bool = Field(True, description="Weight decay reaches the embeddings and the head too.")
    max_grad_norm: float = Field(1.0, gt=0, description="Clip by global norm.")
    steps_per_version: int = Field(
        1,
        ge=1,
        description="Optimizer steps per batch, each on its share of the samples in a drawn order.",
    )


class ComputeConfig(Config):
    """Where and in which precision the passes are computed; masters, gradients and moments are always float32."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 where there are units for it; then ratios to the sampler are 1 only roughly."
    )
    activation_checkpointing: bool = Field(
        False, description="Compute each layer again in the backward pass: less memory, a third more time."
    )


class CurriculumConfig(Config):
    """Which tasks are sampled more often than the pool's own order has them (see `rl.curriculum`)."""

    enabled: bool = Field(False, description="Off = every task comes once before any comes twice.")
    target_rate: float = Field(0.5, gt=0, lt=1, description="Solve rate that is sought.")
    band: float = Field(0.4, gt=0, lt=1, description="Distance from target_rate at which a task is no longer sought.")
    explore_share: float = Field(
        0.25, ge=0.001, le=1, description="Share of the groups that go through all tasks as if it were off."
    )
    revisit_share: float = Field(
        0.8, ge=0, le=1, description="Of the other groups: the share for tasks that are known to be worth it."
    )
    weights: Literal["fixed", "adaptive"] = Field(
        "fixed", description="adaptive = the other groups move to those members of a mixture where there is to learn."
    )
    smoothing: float = Field(0.5, ge=0, lt=1, description="Weight of the past in a task's solve rate.")
    retry_after: int = Field(
        4, ge=1, le=1 << 20, description="Versions until an unsolved task is tried again; doubles with every failure."
    )
    max_retry_after: int = Field(256, ge=1, le=1 << 20, description="Versions; the longest such pause.")
    max_tracked_tasks: int = Field(
        10_000, ge=1, le=100_000, description="Tasks whose solve rate is remembered; 28 bytes each in a checkpoint."
    )
    max_planned_tasks: int = Field(512, ge=0, le=4096, description="Tasks that one plan may name.")
    every_versions: int = Field(1, ge=1, description="Versions between plans.")

    @model_validator(mode="after")
    def _pauses_are_in_order(self) -> "CurriculumConfig":
        if self.max_retry_after < self.retry_after:
            raise ValueError(
                f"max_retry_after is {self.max_retry_after} with retry_after {self.retry_after}: it must not be less"
            )
        return self


class CheckpointConfig(Config):
    """How often the trainer's state is made durable."""

    every_versions: int = Field(
        1, ge=1, description="1 = nothing is lost at a kill; n = at most n - 1 versions are stepped back over."
    )
    keep: int = Field(2, ge=1, description="Complete checkpoints kept.")


class EvaluationConfig(Config):
    """How well held-out tasks are solved, and which fall keeps a version from being published."""

    every_versions: int = Field(25, ge=1, description="Versions between held-out evaluations.")
    num_tasks: int = Field(512, ge=1, description="Held-out tasks, one rollout each.")
    temperature: float = Field(1.0, ge=0, description="0 = greedy.")
    environment: str = Field(
        "", description="Whose held-out tasks, for example gsm8k-100; empty = those of the pool's own environment."
    )
    environment_args: dict[str, EnvArg] = Field({}, description="Arguments of that environment.")
    max_accuracy_drop: float = Field(
        0.3,
        gt=0,
        le=1,
        description="A fall below the best by more than this, and beyond chance, steps back to the best checkpoint; "
        "1 = never.",
    )


class TrainerConfig(Config):
    """What a batch is, and how long and how patiently the trainer works."""

    model: ModelSourceConfig = ModelSourceConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    shaping: ShapingConfig = ShapingConfig()
    lora: LoraConfig = LoraConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    compute: ComputeConfig = ComputeConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    accept_changes: bool = Field(
        False, description="Go on although settings, data or numerics are not those of the checkpoint."
    )
    max_versions: int = Field(500, ge=1, le=10_000_000, description="Publications after which the run is finished.")
    batch_counts: Literal["all", "signal"] = Field(
        "all",
        description="Which groups count towards pool.groups_per_batch; signal = a batch fills until it has so many "
        "that can be learned from (dynamic sampling).",
    )
    max_sampled_per_batch: int | None = Field(
        None,
        ge=1,
        description="batch_counts signal: a batch is taken at the latest with so many times groups_per_batch groups; "
        "none = 4, or fewer where the pool lets fewer be out.",
    )
    window_slots: int = Field(
        8, ge=1, description="How many later slots may be ready before a missing one is passed over for now."
    )
    micro_batch_tokens: int = Field(16_384, ge=1, le=1_000_000_000, description="Most tokens in one forward pass.")
    chunk_bytes: int = Field(4 << 20, ge=1024, description="Size of the pieces that weights are published in.")
    snapshot_every: int = Field(
        8,
        ge=1,
        le=1000,
        description="Every so many versions the weights are published whole; those between are patches where these "
        "are smaller. 1 = no patches.",
    )
    regrade_share: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share of accepted slots whose rewards the trainer computes once more before it learns from them.",
    )
    num_samples_logged: int = Field(8, ge=0, description="Completions written to samples.jsonl per evaluation.")
    heartbeat_s: float = Field(2.0, gt=0, description="Seconds between signs of life.")
    poll_s: float = Field(10.0, gt=0, description="How long one request for outcomes may wait at the coordinator.")
    unreachable_s: float = Field(120.0, gt=0, description="Give up when the coordinator is away for longer.")
