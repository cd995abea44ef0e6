"""The point from which ours and the peer start: the demo's task, model and warm-started weights, by seed."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from farflung.engine.base import SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.envs.playing import EpisodeLimits
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import evaluate
from farflung.model.factory import random_state
from farflung.model.folder import save_folder
from farflung.model.vocabulary import never_drawn
from farflung.trainer.config import ModelSourceConfig, OptimizerConfig, WarmStartConfig
from farflung.trainer.model_source import ModelDescription, describe
from farflung.trainer.policy import Policy
from farflung.trainer.warm_start import warm_start

NUM_HELDOUT_TASKS = 512


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Start:
    """Everything that does not depend on who trains."""

    settings: dict[str, Any]
    """The demo's config file."""
    environment: Environment
    description: ModelDescription
    sampling: SamplingParams
    state: dict[str, Tensor]
    """Hugging Face names; float32 that bf16 holds exactly, so that both sides begin with the same numbers."""

    @property
    def reserved_token_ids(self) -> tuple[int, ...]:
        return self.sampling.reserved_token_ids

    @property
    def optimizer(self) -> OptimizerConfig:
        return OptimizerConfig(**self.settings["trainer"]["optimizer"])

    @property
    def num_groups(self) -> int:
        """Of one step."""
        return int(self.settings["pool"]["groups_per_batch"])

    @property
    def group_size(self) -> int:
        return int(self.settings["pool"]["group_size"])

    @property
    def max_versions(self) -> int:
        return int(self.settings["trainer"]["max_versions"])

    def accuracy(self, state: dict[str, Tensor], engine: TorchEngine | None = None) -> float:
        """On the held-out tasks and draws that every run of farflung is evaluated with."""
        engine = engine or self.engine()
        engine.load_weights(state, 0)
        return evaluate(
            engine, self.environment, self.description.tokenizer, self.sampling, num_tasks=NUM_HELDOUT_TASKS
        ).accuracy

    def engine(self) -> TorchEngine:
        return TorchEngine(self.description.config, max_batch_rows=256)

    def save(self, folder: Path) -> None:
        """As a model folder, which both sides can load."""
        save_folder(folder, self.description.config, self.state, self.description.tokenizer.files)


def demo_settings() -> dict[str, Any]:
    return tomllib.loads(resources.files("farflung.cli.configs").joinpath("demo.toml").read_text(encoding="utf-8"))


def warm_started(seed: int) -> Start:
    """As the demo begins, up to its own target accuracy; a second or two."""
    settings = demo_settings()
    pool, trainer = settings["pool"], settings["trainer"]
    environment = load_environment(settings["environment"]["name"], seed, settings["environment"]["args"])
    description = describe(ModelSourceConfig(**trainer["model"]), environment)
    sampling = SamplingParams(
        temperature=pool["temperature"],
        max_completion_tokens=pool["max_completion_tokens"],
        eos_token_ids=description.config.eos_token_ids,
        reserved_token_ids=never_drawn(description.tokenizer, description.config),
    )
    policy = Policy(description.config, random_state(description.config, seed, 0.05), OptimizerConfig())
    start = Start(settings=settings, environment=environment, description=description, sampling=sampling, state={})
    engine = start.engine()
    warm_start(
        policy,
        environment,
        description.tokenizer,
        EpisodeLimits(
            max_prompt_tokens=pool["max_prompt_tokens"],
            max_completion_tokens=pool["max_completion_tokens"],
            eos_token_ids=frozenset(description.config.eos_token_ids),
        ),
        description.config.eos_token_ids[0],
        WarmStartConfig(**trainer["warm_start"]),
        measure_accuracy=lambda: start.accuracy(policy.published_state(), engine),
        report=lambda *_: None,
        should_stop=lambda: False,
    )
    start.state.update({name: tensor.to(torch.float32) for name, tensor in policy.published_state().items()})
    return start
