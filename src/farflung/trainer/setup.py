"""Everything of a trainer that needs no network: built new from a seed or a model's folder, or as a checkpoint left it.

Blocking. Whether coordinator and checkpoint fit together is the publisher's to find out.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from farflung.envs.base import Environment
from farflung.envs.digest import data_digest, package_of
from farflung.envs.named import named
from farflung.envs.registry import load_for_grading
from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state
from farflung.model.folder import load_folder
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, Counts, ExperienceBuffer, every_group
from farflung.slots.deterministic import slots_per_batch
from farflung.trainer.adapter_base import AdapterBase
from farflung.trainer.canary import Canary
from farflung.trainer.canary_tasks import canary_environment
from farflung.trainer.checkpoint import Checkpoint, Component
from farflung.trainer.config import TrainerConfig
from farflung.trainer.curriculum import Curriculum
from farflung.trainer.learner import Learner
from farflung.trainer.lineage import Lineage, changes, refuse, settings_of, software_changes
from farflung.trainer.lora_policy import LoraPolicy
from farflung.trainer.lora_reference import LoraReference
from farflung.trainer.make_policy import make_policy
from farflung.trainer.model_source import TINY, ModelDescription, describe
from farflung.trainer.objective import make_shaping
from farflung.trainer.policy_base import MASTERS_DTYPE, PolicyBase
from farflung.trainer.reference import REFERENCE_FOLDER, KlReference, Reference
from farflung.trainer.samples import why_left_out
from farflung.wire.manifest import Publication
from farflung.wire.pool import EnvironmentSpec, PoolSpec

logger = logging.getLogger(__name__)

NUM_PROMPTS_CHECKED = 64
MAX_SAMPLED_PER_BATCH = 4
"""Times the groups of a batch, unless the settings say otherwise."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Setup:
    """The parts of a trainer before it meets anybody."""

    environment: Environment
    description: ModelDescription
    reserved_token_ids: tuple[int, ...]
    learner: Learner
    canary: Canary
    buffer: ExperienceBuffer
    publication: Publication | None
    """Of the checkpoint that it goes on from; None for a new run."""
    rollbacks_in_a_row: int
    """Refused batches since the last one that was trained on."""
    lineage: Lineage
    accepted_changes: tuple[str, ...] = ()
    """What is not as it was in the checkpoint, and is gone on with knowingly."""
    curriculum: Curriculum | None = None
    """One of the components, if there is one."""
    components: Mapping[str, Component] = field(default_factory=dict)
    """Whatever else has a state: curriculum, adaptive objectives."""

    @property
    def policy_files(self) -> dict[str, bytes]:
        """Everything of a published version except the weights."""
        return {**self.description.policy_files, **self.learner.policy.config_files}


def set_up(
    config: TrainerConfig, pool: PoolSpec, seed: int, checkpoint: Checkpoint | None, run_folder: Path = Path()
) -> Setup:
    """Weights come from the checkpoint if there is one.

    Args:
        run_folder: where a reference policy is kept, if the objective has one.

    Raises:
        UserError: model, settings, pool and checkpoint do not fit together.
    """
    installed = load_for_grading(pool.environment)
    environment = named(installed)
    description = describe(config.model, environment)
    _check_pool(config, description, pool)
    _check_prompts(environment, description, pool)
    _check_deterministic(config, pool)
    reserved = never_drawn(description.tokenizer, description.config)
    lineage = _lineage(config, environment, package_of(installed), pool.environment)
    accepted = () if checkpoint is None else _accepted_changes(config, pool, checkpoint, lineage)
    policy = _policy(config, description, seed, checkpoint)
    reference = _reference(config, policy, description, run_folder)
    learner = Learner(policy, config, pool, reserved, reference)
    curriculum = Curriculum(config.curriculum, pool) if config.curriculum.enabled else None
    max_context_tokens = description.config.max_context_tokens
    measured = canary_environment(config, environment, description.tokenizer, pool, max_context_tokens)
    setup = Setup(
        environment=environment,
        description=description,
        reserved_token_ids=reserved,
        learner=learner,
        canary=Canary(
            config.evaluation, description.config, measured, description.tokenizer, pool, reserved, policy.device
        ),
        buffer=_buffer(config, pool, checkpoint),
        publication=None if checkpoint is None else checkpoint.publication,
        rollbacks_in_a_row=0 if checkpoint is None else checkpoint.progress.rollbacks_in_a_row,
        lineage=lineage,
        accepted_changes=accepted,
        curriculum=curriculum,
        components=_components(config, learner, reference, curriculum),
    )
    if checkpoint is not None:
        setup.learner.resume(checkpoint)
        setup.canary.initial_accuracy = checkpoint.progress.initial_accuracy
        setup.canary.best_accuracy = checkpoint.progress.best_accuracy
        _restore_components(setup.components, checkpoint)
        if reference is not None:
            reference.begin(learner.optimizer_step)
    return setup


def _reference(
    config: TrainerConfig, policy: PolicyBase, description: ModelDescription, run_folder: Path
) -> KlReference | None:
    kl = config.objective.kl
    if not kl.coefficient:
        return None
    folder = Path(kl.reference) if kl.reference else run_folder / REFERENCE_FOLDER
    if isinstance(policy, LoraPolicy) and not kl.reference:
        return LoraReference(policy, folder)
    return Reference(policy, folder, description.tokenizer.files, is_given=bool(kl.reference))


def _policy(
    config: TrainerConfig, description: ModelDescription, seed: int, checkpoint: Checkpoint | None
) -> PolicyBase:
    """Below an adapter lie the weights that the run began with, which no checkpoint has."""
    masters = None if checkpoint is None else checkpoint.masters
    state = _first_masters(config, description, seed) if masters is None or config.lora.rank else masters
    return make_policy(
        description.config,
        state,
        config.lora,
        config.optimizer,
        config.compute,
        publish=config.lora.publish,
        seed=seed,
        masters=masters,
    )


def _components(
    config: TrainerConfig, learner: Learner, reference: KlReference | None, curriculum: Curriculum | None
) -> dict[str, Component]:
    """Those that have something to remember."""
    policy = learner.policy
    base = AdapterBase(policy.base_sha256, config.model.path) if isinstance(policy, LoraPolicy) else None
    named: dict[str, Component | None] = {
        "objective": learner.adaptation if learner.adaptation.is_on else None,
        "adapter_base": base,
        "reference": reference,
        "curriculum": curriculum,
    }
    return {name: component for name, component in named.items() if component is not None}


def _lineage(
    config: TrainerConfig, environment: Environment, package: tuple[str, str], rules: EnvironmentSpec
) -> Lineage:
    sources = {**rules.sources, **({rules.name: f"package {rules.package}"} if rules.package else {})}
    return Lineage(
        settings=settings_of(config),
        data_digest=data_digest(environment),
        dtype=MASTERS_DTYPE,
        software={"torch": str(torch.__version__), package[0]: package[1], **sources},
    )


def _accepted_changes(
    config: TrainerConfig, pool: PoolSpec, checkpoint: Checkpoint, lineage: Lineage
) -> tuple[str, ...]:
    """What has changed since the checkpoint, refused unless the person says that it is meant."""
    _check_same_pool(checkpoint, pool)
    before = checkpoint.progress.lineage
    if before is None:
        return ()
    found = changes(before, lineage, defaults=settings_of(TrainerConfig()))
    other_software = software_changes(before, lineage)
    if pool.is_deterministic:
        found += other_software
    elif other_software:
        logger.warning("going on with other software than before: %s", "; ".join(other_software))
    if not config.accept_changes:
        refuse(found)
    return tuple(found)


def _restore_components(components: Mapping[str, Component], checkpoint: Checkpoint) -> None:
    """One that the checkpoint does not know begins anew."""
    for name, snapshot in checkpoint.progress.component_state.items():
        if name in components:
            components[name].restore(snapshot)


def _check_pool(config: TrainerConfig, description: ModelDescription, pool: PoolSpec) -> None:
    if description.tokenizer.digest != pool.tokenizer_digest or description.config_digest != pool.model_config_digest:
        raise UserError(
            "the pool's rules name another model or tokenizer than this trainer's config: start coordinator and "
            "trainer from the same config file"
        )
    longest_tokens = pool.max_prompt_tokens + pool.max_completion_tokens
    if config.micro_batch_tokens < longest_tokens:
        raise UserError(
            f"trainer.micro_batch_tokens is {config.micro_batch_tokens} but the pool's longest sequence has "
            f"{longest_tokens} tokens: raise trainer.micro_batch_tokens"
        )


def _check_prompts(environment: Environment, description: ModelDescription, pool: PoolSpec) -> None:
    """A sample of them: workers give back the few tasks that are too long, but not all."""
    targets = environment.target_lengths or (0,)
    for index in range(min(NUM_PROMPTS_CHECKED, environment.num_tasks)):
        task = environment.task("train", index, targets[index % len(targets)])
        num_tokens = len(description.tokenizer.encode_chat(task.messages))
        if num_tokens > pool.max_prompt_tokens:
            raise UserError(
                f"pool.max_prompt_tokens is {pool.max_prompt_tokens} but task {task.task_id} of {environment.name} has "
                f"a prompt of {num_tokens} tokens: raise pool.max_prompt_tokens"
            )


def _check_deterministic(config: TrainerConfig, pool: PoolSpec) -> None:
    if pool.is_deterministic and config.checkpoint.every_versions != 1:
        raise UserError(
            f"trainer.checkpoint.every_versions is {config.checkpoint.every_versions} with pool.deterministic: a "
            "trainer that is killed would step back and not make the same versions again; set it to 1"
        )
    if pool.is_deterministic and config.batch_counts != "all":
        raise UserError(
            f'trainer.batch_counts is "{config.batch_counts}" with pool.deterministic, where a batch is a fixed number '
            'of slots: set it to "all"'
        )


def _check_same_pool(checkpoint: Checkpoint, pool: PoolSpec) -> None:
    if checkpoint.progress.pool_digest != pool.digest():
        raise UserError(
            f"the checkpoint of version {checkpoint.progress.policy_version} is of another pool: its rules have "
            "changed; change them back or give the run another name"
        )


def _first_masters(config: TrainerConfig, description: ModelDescription, seed: int) -> dict[str, Tensor]:
    if config.model.path == TINY:
        assert isinstance(description.config, ModelConfig), "a model that is made here is one of the own decoder"
        return random_state(description.config, seed, config.model.init_std)
    return load_folder(Path(config.model.path)).state


def _buffer(config: TrainerConfig, pool: PoolSpec, checkpoint: Checkpoint | None) -> ExperienceBuffer:
    """Places for everything that the coordinator lets be outstanding, so the feed never blocks on a full buffer.

    Given-up slots are reported at the latest when they leave the pool less than a batch, and no batch waits for more
    slots than may be outstanding.
    """
    outstanding_slots = pool.max_outstanding_groups // pool.groups_per_slot
    batch_slots = -(-pool.groups_per_batch // pool.groups_per_slot)
    is_filled = config.batch_counts == "signal"
    most_batches = _most_sampled(config, pool) if is_filled else 0
    params = BufferParams(
        groups_per_batch=pool.groups_per_batch,
        max_staleness=pool.max_staleness,
        max_slots=outstanding_slots + batch_slots + 1,
        window_slots=config.window_slots,
        max_unreported=max(0, outstanding_slots - batch_slots),
        max_slots_per_batch=min(most_batches * batch_slots, outstanding_slots) if is_filled else None,
        slots_per_batch=slots_per_batch(pool) if pool.is_deterministic else None,
    )
    counts = _has_signal(config, pool) if is_filled else every_group
    if checkpoint is None:
        return ExperienceBuffer(params, counts)
    return ExperienceBuffer.restore(params, checkpoint.buffer_snapshot, counts)


def _most_sampled(config: TrainerConfig, pool: PoolSpec) -> int:
    """Batches that one is filled from at most. What is out beyond that, or beyond the staleness bound, never comes."""
    if config.max_sampled_per_batch is not None:
        return config.max_sampled_per_batch
    most = min(
        MAX_SAMPLED_PER_BATCH, pool.max_staleness + 1, max(1, pool.max_outstanding_groups // pool.groups_per_batch)
    )
    logger.info("a batch is filled from at most %d times its groups", most)
    return most


def _has_signal(config: TrainerConfig, pool: PoolSpec) -> Counts:
    """Exactly the groups that the learner will learn from."""
    judged_on = config.objective.signal
    shaping = make_shaping(config.shaping, max_completion_tokens=pool.max_completion_tokens)
    return lambda group: why_left_out(group, judged_on=judged_on, shaping=shaping) is None
