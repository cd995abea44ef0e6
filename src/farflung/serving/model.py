"""The served model: from a request's text or messages to engine requests."""

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from msgspec import convert

from farflung.engine.live import LiveBatch, LiveRequest
from farflung.engine.rows_of import rows_of
from farflung.envs.budget_prompt import BudgetPrompt
from farflung.errors import UserError
from farflung.model.adapted import put_adapter
from farflung.model.adapter_files import load_adapter_folder
from farflung.model.any_config import AnyConfig
from farflung.model.build import build_decoder
from farflung.model.description import model_name
from farflung.model.folder import load_folder
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.model.weights import load_hf_state
from farflung.serving.config import ServeConfig
from farflung.serving.errors import invalid
from farflung.serving.requests import ChatMessage
from farflung.wire.task import Message


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ServedModel:
    name: str
    config: AnyConfig
    tokenizer: Tokenizer
    eos_token_ids: frozenset[int]
    max_context_tokens: int
    budget_prompt: BudgetPrompt = field(default_factory=BudgetPrompt)
    """How a thinking budget is told."""

    def chat_ids(self, messages: list[ChatMessage], thinking_budget: int | None) -> list[int]:
        """Ids of the rendered prompt. Raises `ApiError` when the template refuses the messages."""
        try:
            return self.tokenizer.encode_chat(self.plain(messages, thinking_budget))
        except UserError as error:
            raise invalid(str(error), "messages") from error

    def plain(self, messages: list[ChatMessage], thinking_budget: int | None) -> list[dict[str, str]]:
        """The messages as the template takes them. Raises `ApiError` for special tokens in them."""
        plain = [
            {"role": "system" if message.role == "developer" else message.role, "content": message.text}
            for message in messages
        ]
        for number, message in enumerate(plain):
            token = self.tokenizer.special_token_in(message["content"])
            if token is not None:  # it would end the turn and begin one of the caller's making
                raise invalid(
                    f"messages.{number}.content spells the special token {token}, which is not text: leave it out, or "
                    "write whole prompts with /v1/completions",
                    f"messages.{number}.content",
                )
        if thinking_budget is not None:
            plain = self.with_budget(plain, thinking_budget)
        return plain

    def with_budget(self, messages: list[dict[str, str]], budget_tokens: int) -> list[dict[str, str]]:
        """The messages with the budget told in them."""
        told = self.budget_prompt.tell([convert(message, Message) for message in messages], budget_tokens)
        return [{"role": message.role, "content": message.content} for message in told]

    def text_ids(self, prompt: str | list[int]) -> list[int]:
        """Ids of a plain prompt. Raises `ApiError` for ids out of range or text that cannot be spelled."""
        if isinstance(prompt, list):
            wrong = [token for token in prompt if not 0 <= token < self.config.vocab_size]
            if wrong:
                raise invalid(f"token id {wrong[0]} is outside the vocabulary of {self.config.vocab_size}", "prompt")
            return prompt
        try:
            return self.tokenizer.encode(prompt)
        except UserError as error:
            raise invalid(str(error), "prompt") from error

    def requests(
        self,
        prompt: list[int],
        *,
        choices: range,
        max_tokens: int | None,
        default_max_tokens: int,
        temperature: float,
        seed: int | None,
        num_top: int,
    ) -> list[LiveRequest]:
        """One engine request per choice. Raises `ApiError` when prompt and completion do not fit."""
        if not prompt:
            raise invalid("the prompt is empty: it needs at least one token", "prompt")
        room = self.max_context_tokens - len(prompt)
        wanted = min(default_max_tokens, room) if max_tokens is None else max_tokens
        if room < 1 or wanted > room:
            raise invalid(
                f"the prompt has {len(prompt)} tokens and {max(wanted, 1)} may follow: "
                f"at most {self.max_context_tokens} are possible together",
                "max_tokens" if room >= 1 else None,
                "context_length_exceeded",
            )
        draw_seed = seed_bytes(seed)
        return [
            LiveRequest(
                prompt_tokens=np.array(prompt, dtype=np.int32),
                max_tokens=wanted,
                temperature=temperature,
                draw_seed=draw_seed,
                choice=choice,
                eos_token_ids=self.eos_token_ids,
                num_top=num_top,
            )
            for choice in choices
        ]


def load_served(path: Path, config: ServeConfig, adapter: Path | None = None) -> tuple[ServedModel, LiveBatch]:
    """Read a model folder, with an adapter beside it if one is named, and make its engine.

    Raises:
        UserError: the folder is no model that can be served.
    """
    torch.set_num_threads(config.threads)
    loaded = load_folder(path)
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    decoder = build_decoder(loaded.config).requires_grad_(False)
    rows = rows_of(decoder)  # before the weights come, so that they are packed
    load_hf_state(decoder, loaded.state)
    if adapter is not None:
        put_adapter(decoder, load_adapter_folder(adapter, loaded.config))
    max_context_tokens = min(config.max_context_tokens, loaded.config.max_context_tokens)
    batch = LiveBatch(
        rows,
        max_rows=config.max_concurrency,
        max_columns=max_context_tokens,
        reserved_token_ids=never_drawn(tokenizer, loaded.config),
    )
    served = ServedModel(
        name=model_name(path),
        config=loaded.config,
        tokenizer=tokenizer,
        eos_token_ids=frozenset(end_of_sequence(tokenizer, loaded.config)),
        max_context_tokens=max_context_tokens,
        budget_prompt=BudgetPrompt(told=config.budget_told, where=config.budget_where),
    )
    return served, batch


def seed_bytes(seed: int | None) -> bytes:
    """The draws' seed; without one, fresh randomness."""
    if seed is None:
        return secrets.token_bytes(32)
    return hashlib.sha256(f"farflung/serve/1/{seed}".encode()).digest()
