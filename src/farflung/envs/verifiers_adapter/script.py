"""A model that says what it is told to say, so that the library plays an episode whose tokens are ours.

    asked(row, turns)     run `rollout` from the beginning, saying `turns`; where it asks once more, that is the answer
    graded(row, turns)    run `run_rollout` with the same; where it asks once more, the prompt is too long: it ends

An environment whose next prompt does not begin with what was said before cannot be played token by token, and fails
with that reason. This module does not know tokens or tasks.
"""

from collections.abc import Sequence
from typing import Any

from farflung.envs.episode import AgentTurn
from farflung.envs.verifiers_adapter.calls import Caller
from farflung.envs.verifiers_adapter.library import library, seeded
from farflung.envs.verifiers_adapter.messages import message_of, response_to, with_tools
from farflung.errors import OurFault
from farflung.wire.task import Message

MODEL = "farflung"


class _Asked(BaseException):
    """Carries a question out of the library's loop, past whatever catches errors there."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        super().__init__()
        self.messages = messages


class Script:
    """Plays rows of one environment."""

    def __init__(self, environment: Any, caller: Caller, seed: int) -> None:
        self._vf, self._environment, self._caller, self._seed = library(), environment, caller, seed

    def asked(self, key: str, row: dict[str, Any], turns: Sequence[AgentTurn]) -> tuple[Message, ...] | None:
        """What the model is told after `turns` and was not told before; None when the episode is over.

        Args:
            key: of the row, for what the environment draws.

        Raises:
            OurFault: the environment rewrites what was said, or tells what is not text.
            TookTooLong: see `Caller`.
            Exception: whatever the environment raises.
        """
        client = self._client(turns, ask=True)
        with seeded("farflung/verifiers-play/1", self._seed, key):
            try:
                self._caller.call(self._environment.rollout(row, client, MODEL, {}))
            except _Asked as question:
                return question.messages
        return None

    def graded(self, key: str, row: dict[str, Any], turns: Sequence[AgentTurn]) -> dict[str, Any]:
        """The library's `RolloutOutput`, with reward and metrics. Raises as `asked`."""
        client = self._client(turns, ask=False)
        with seeded("farflung/verifiers-play/1", self._seed, key):
            output: dict[str, Any] = self._caller.call(self._environment.run_rollout(row, client, MODEL, {}))
        return output

    def _client(self, turns: Sequence[AgentTurn], *, ask: bool) -> Any:
        """A client of the library; what it needs to talk to a server is never called."""
        vf, heard = self._vf, _Heard()

        async def get_response(_self: Any, prompt: Any, *_args: Any, tools: Any = None, **_others: Any) -> Any:
            number = heard.num_turns
            new = heard.new_in(prompt)
            if number < len(turns):
                turn = turns[number]
                return response_to(vf, turn.text, number, is_cut=turn.is_cut, has_tools=bool(tools))
            if not ask:
                raise vf.OverlongPromptError
            told = tuple(message_of(each) for each in new)
            raise _Asked(told if number else with_tools(told, tools or ()))

        unused = dict.fromkeys(vf.Client.__abstractmethods__, _unused)
        return type("ScriptedClient", (vf.Client,), {**unused, "get_response": get_response})(None)


class _Heard:
    """How much of the conversation the model has seen."""

    def __init__(self) -> None:
        self.num_turns = 0
        self._seen: list[str] = []

    def new_in(self, prompt: Any) -> list[Any]:
        """Messages after the last answer. Raises `OurFault` where the prompt does not go on from the one before."""
        if not isinstance(prompt, list):
            raise OurFault("the environment asks with plain text: only conversations can be played")
        shown = [each.model_dump_json() for each in prompt]  # a copy, since messages may be changed in place
        length = len(self._seen)
        if shown[:length] != self._seen:
            raise OurFault("the environment rewrites what was said before: it cannot be played token by token")
        first = length + 1 if self.num_turns else 0
        if self.num_turns and [each.role for each in prompt[length:first]] != ["assistant"]:
            raise OurFault("the environment leaves out what the model said: it cannot be played token by token")
        self.num_turns += 1
        self._seen = shown
        return prompt[first:]


def _unused(*_args: Any, **_others: Any) -> None:
    raise NotImplementedError("a scripted model has no server")
