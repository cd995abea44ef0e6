"""From a configuration to the rules of a pool: environment and model are looked at, weights are not."""

from pathlib import Path

from farflung.cli.config import RunConfig
from farflung.cli.proof_rules import read_proof_rules
from farflung.errors import UserError
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES

UNNAMED = "0x" + 40 * "0"
"""In place of keys that nobody made yet, where a configuration is only looked at."""


def build_pool(config: RunConfig, *, coordinator: str = UNNAMED, trainer: str = UNNAMED) -> PoolSpec:
    """The record that every role follows; a function of the configuration and the model's folder.

    Args:
        coordinator: address of its key, as `trainer`; open pools name neither.

    Raises:
        UserError: no such environment, wrong arguments for it, no model in the folder, or the two do not fit.
    """
    from farflung.envs.base import graders_of, strata_of
    from farflung.envs.episode import num_agents_of
    from farflung.envs.graders.registry import are_reproducible, require_known
    from farflung.envs.playable import require_playable
    from farflung.envs.registry import load_environment, package_digest_of, sources_here  # these take a while to import
    from farflung.trainer.model_source import describe

    section = config.environment
    environment = load_environment(section.name, config.environment_seed, section.args)
    if not environment.num_tasks:
        raise UserError(
            f"environment.name is {section.name}, a test set that nothing is trained on: choose another, and name this "
            "one in trainer.evaluation.environment"
        )
    graders = graders_of(environment)
    require_known(graders)
    if config.pool.deterministic and not are_reproducible(graders):
        names = ", ".join(spec.label for spec in graders)
        raise UserError(
            f"pool.deterministic is true, and {section.name} grades with {names}: a judge may change its mind"
        )
    description = describe(config.trainer.model, environment)
    is_replayed = not config.run.local or config.pool.deterministic
    require_playable(environment, description.tokenizer, is_replayed=is_replayed)
    return config.pool.build(
        environment=EnvironmentSpec(
            name=section.name,
            args=section.args,
            seed=config.environment_seed,
            num_tasks=environment.num_tasks,
            target_lengths=environment.target_lengths,
            strata=strata_of(environment),
            graders=graders,
            num_agents=num_agents_of(environment),
            package=package_digest_of(section.name),
            sources=sources_here(section.name, section.args),
        ),
        tokenizer_digest=description.tokenizer.digest,
        model_config_digest=description.config_digest,
        seed=config.run.seed,
        proofs=read_proof_rules(Path(config.pool.proof_rules)) if config.pool.proof_rules else DEFAULT_RULES,
        coordinator="" if config.pool.trust == "open" else coordinator,
        trainer="" if config.pool.trust == "open" else trainer,
    )
