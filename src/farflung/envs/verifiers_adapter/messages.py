"""Messages and tools of the library in our words, and a model's text in the library's.

    their messages    pydantic objects of roles system, user, assistant, tool; of their parts text alone
    their tools       told in a system prompt, called in text as `<tool_call>{...}</tool_call>` (`envs.tools`)

A call that is no JSON object with a name goes to the library as it is, with the name `unreadable`, so that the
environment says what it says to such calls. This module does not know episodes.
"""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from msgspec import ValidationError, convert

from farflung.envs.tools import Tool, Toolbox, called, uncalled
from farflung.errors import OurFault, UserError
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.wire.task import Message

UNREADABLE = "unreadable"


def message_of(theirs: Any) -> Message:
    """Raises `OurFault` for a message that is not text, or of a role that nobody knows."""
    content = theirs.content
    if not isinstance(content, str):
        parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content or ()]
        if strange := [part.get("type") for part in parts if part.get("type") != "text"]:
            raise OurFault(f"a message of role {theirs.role} has a part of type {strange[0]}: only text can be told")
        content = "".join(part["text"] for part in parts)
    try:
        return convert({"role": theirs.role, "content": content}, Message)
    except ValidationError as error:
        raise OurFault(f"a message of role {theirs.role!r}: there are system, user, assistant and tool") from error


def with_tools(messages: Sequence[Message], tools: Sequence[Any]) -> tuple[Message, ...]:
    """The prompt with the tools told in its system message, or in one of their own.

    Raises:
        UserError: a schema that cannot be told.
    """
    if not tools:
        return tuple(messages)
    try:
        told = Toolbox([_tool(each) for each in tools]).instructions
    except ValueError as error:
        raise UserError(f"tools of a verifiers environment: {error}") from error
    if messages and messages[0].role == "system":
        return (Message(role="system", content=f"{messages[0].content}\n\n{told}"), *messages[1:])
    return (Message(role="system", content=told), *messages)


def response_to(vf: ModuleType, text: str, number: int, *, is_cut: bool, has_tools: bool) -> Any:
    """A `Response` in which the model said `text` as turn `number`."""
    calls = [_call(vf, raw, f"call_{number}_{k}") for k, raw in enumerate(called(text))] if has_tools else []
    reason = "length" if is_cut else "tool_calls" if calls else "stop"
    message = vf.types.ResponseMessage(
        content=uncalled(text) if calls else text,
        tool_calls=calls or None,
        finish_reason=reason,
        is_truncated=is_cut,
    )
    return vf.types.Response(id=f"turn-{number}", created=0, model="farflung", usage=None, message=message)


def _call(vf: ModuleType, raw: str, call_id: str) -> Any:
    name, arguments = UNREADABLE, raw
    try:
        value = read_json(raw)
    except NotJson:
        value = None
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        name, arguments = value["name"], json.dumps(value.get("arguments", {}))
    return vf.types.ToolCall(id=call_id, name=name, arguments=arguments)


def _tool(theirs: Any) -> Tool:
    def never(arguments: Mapping[str, Any]) -> str:
        raise NotImplementedError(f"{theirs.name} is run by its environment, with {arguments}")

    return Tool(name=theirs.name, description=theirs.description, parameters=theirs.parameters, run=never)
