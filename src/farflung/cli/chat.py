"""`farflung chat MODEL`: talk to a model in the terminal."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from farflung.errors import UserError

if TYPE_CHECKING:
    from farflung.engine.live import LiveBatch, LiveRequest
    from farflung.model.tokenizer import Tokenizer

HELP = "/reset starts anew, /exit or Ctrl-D leaves, Ctrl-C stops an answer\n"


def run_chat(arguments: Namespace) -> int:
    """Lines from standard input, answers as they are drawn."""
    from farflung.envs.budget_prompt import TOLD
    from farflung.model.conversation import Conversation
    from farflung.serving.config import ServeConfig
    from farflung.serving.errors import ApiError
    from farflung.serving.model import load_served

    _check(arguments)
    model, batch = load_served(
        Path(arguments.model),
        ServeConfig(max_concurrency=1, budget_told=arguments.budget_told or TOLD, budget_where=arguments.budget_where),
        adapter=Path(arguments.adapter) if arguments.adapter else None,
    )
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    budget: int | None = arguments.thinking_budget
    sys.stdout.write(HELP)
    conversation: Conversation | None = None
    for turn, line in enumerate(_lines()):
        if line == "/exit":
            break
        if line == "/reset":
            conversation = None
            continue
        said = [{"role": "user", "content": line}]
        if conversation is None:
            said = [*system, *said]
        if budget is not None and (conversation is None or model.budget_prompt.where == "user"):
            said = model.with_budget(said, budget)
        if conversation is None:
            conversation = Conversation(model.tokenizer, said)
        else:
            conversation.say(said)
        try:
            (request,) = model.requests(
                conversation.ids,
                choices=range(turn, turn + 1),
                max_tokens=None,
                default_max_tokens=arguments.max_tokens,
                temperature=arguments.temperature,
                seed=arguments.seed,
                num_top=0,
            )
        except ApiError as error:
            raise UserError(f"the conversation is too long: {error.message}; /reset starts anew") from error
        conversation.answer(_answer(batch, request, model.tokenizer))
    return 0


def _check(arguments: Namespace) -> None:
    for name, least in (("max_tokens", 1), ("thinking_budget", 1), ("temperature", 0)):
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise UserError(f"--{name.replace('_', '-')} is {value}: it must be at least {least}")


def _lines() -> Iterator[str]:
    """What the person says, without blank lines."""
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            sys.stdout.write("\nyou> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(batch: "LiveBatch", request: "LiveRequest", tokenizer: "Tokenizer") -> list[int]:
    """Write the answer as it comes; the ids that were drawn. Ctrl-C ends it early."""
    from farflung.serving.text import TextStream

    text, drawn = TextStream(tokenizer.decode), list[int]()
    handle = batch.add(request)
    try:
        while token := batch.step().get(handle):
            drawn.append(token.token)
            sys.stdout.write(text.add(token.token))
            sys.stdout.flush()
    except KeyboardInterrupt:
        batch.cancel(handle)
        sys.stdout.write(" [stopped]")
    sys.stdout.write(f"{text.end()}\n")
    return drawn
