"""Where the first policy comes from: a small model made here, or a Hugging Face folder.

Describing it needs no torch, so that a coordinator can state the pool's rules without it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from farflung.envs.base import Environment
from farflung.errors import UserError
from farflung.model.any_config import AnyConfig
from farflung.model.characters import character_tokenizer
from farflung.model.description import CONFIG_FILE, load_config, load_tokenizer_files
from farflung.model.presets import tiny_config
from farflung.model.tokenizer import Tokenizer
from farflung.trainer.config import ModelSourceConfig
from farflung.wire.canonical import canonical_json, tagged_digest

TINY = "tiny"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ModelDescription:
    """A model without its weights."""

    config: AnyConfig
    tokenizer: Tokenizer

    @property
    def config_digest(self) -> str:
        """Identity of the architecture, for `PoolSpec.model_config_digest`."""
        return tagged_digest("farflung/model-config/1", canonical_json(self.config.to_hf()))

    @property
    def policy_files(self) -> dict[str, bytes]:
        """Everything of a published version except the weights."""
        return {CONFIG_FILE: json.dumps(self.config.to_hf(), indent=2).encode(), **self.tokenizer.files}


def describe(source: ModelSourceConfig, environment: Environment) -> ModelDescription:
    """Config and tokenizer of the first policy.

    Raises:
        UserError: the folder is not a model, or a tiny model cannot spell the environment's tasks.
    """
    if source.path != TINY:
        return _describe_folder(source.path)
    alphabet = environment.alphabet()
    if alphabet is None:
        raise UserError(
            f'trainer.model.path is "tiny" but environment {environment.name} has an open vocabulary: '
            "set trainer.model.path to the folder of a model with its own tokenizer"
        )
    tokenizer = character_tokenizer(alphabet)
    config = tiny_config(
        tokenizer,
        hidden_size=source.hidden_size,
        num_layers=source.num_layers,
        num_heads=source.num_heads,
        intermediate_size=source.intermediate_size,
    )
    return ModelDescription(config=config, tokenizer=tokenizer)


def _describe_folder(path: str) -> ModelDescription:
    folder = Path(path)
    try:
        return ModelDescription(
            config=load_config(folder), tokenizer=Tokenizer.from_files(load_tokenizer_files(folder))
        )
    except UserError as error:
        raise UserError(f'trainer.model.path is "{path}": {error}, or "{TINY}" for a small model made here') from error
