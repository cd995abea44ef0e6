"""A model that answers what an environment asks: a conversation per agent, printed as it is drawn."""

import sys
from pathlib import Path

from farflung.envs.episode import Ask
from farflung.errors import UserError
from farflung.model.conversation import Conversation
from farflung.serving.config import ServeConfig
from farflung.serving.errors import ApiError
from farflung.serving.model import load_served
from farflung.serving.text import TextStream


class ModelAnswers:
    """Called with an ask, returns what the model says and whether it reached `max_tokens`."""

    def __init__(self, path: Path, *, temperature: float, max_tokens: int, seed: int, echo: bool) -> None:
        """Raises `UserError`: the folder is no model."""
        self._model, self._batch = load_served(path, ServeConfig(max_concurrency=1))
        self._temperature, self._max_tokens, self._seed, self._echo = temperature, max_tokens, seed, echo
        self._conversations: dict[int, Conversation] = {}
        self._num_asked = 0

    def __call__(self, ask: Ask) -> tuple[str, bool]:
        conversation = self._conversations.get(ask.agent)
        if conversation is None:
            conversation = Conversation(self._model.tokenizer, list(ask.messages))
            self._conversations[ask.agent] = conversation
        else:
            conversation.say(list(ask.messages))
        try:
            (request,) = self._model.requests(
                conversation.ids,
                choices=range(self._num_asked, self._num_asked + 1),
                max_tokens=None,
                default_max_tokens=self._max_tokens,
                temperature=self._temperature,
                seed=self._seed,
                num_top=0,
            )
        except ApiError as error:
            raise UserError(f"the episode is too long for the model: {error.message}") from error
        self._num_asked += 1
        text, drawn = TextStream(self._model.tokenizer.decode), list[int]()
        handle = self._batch.add(request)
        while token := self._batch.step().get(handle):
            drawn.append(token.token)
            self._write(text.add(token.token))
        self._write(f"{text.end()}\n")
        is_cut = drawn[-1] not in self._model.tokenizer.eos_token_ids
        return conversation.answer(drawn), is_cut

    def _write(self, text: str) -> None:
        if self._echo:
            sys.stdout.write(text)
            sys.stdout.flush()
