"""Tools that a model may call in the middle of its answer, and how it says so.

    model    ... <tool_call>{"name": "python", "arguments": {"code": "print(6 * 7)"}}</tool_call>
    told     42                                               one message of role `tool` for each call, in order

The form is that of Hermes and Qwen. A call that cannot be read, names no tool or has wrong arguments is answered with a
sentence, as is what a tool refuses (`ToolRefusal`); anything else that a tool raises is the environment's fault. Calls
and outputs are bounded before anything is done with them. A tool that may answer otherwise the next time, or on another
machine, says so (`is_reproducible`): validators play episodes again. This module does not know what tools do.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farflung.rewards.verifiers.json_schema import grade_document
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.wire.task import Message

MAX_CALLS = 8
"""Of one turn; later ones are not looked at."""
MAX_CALL_CHARS = 1 << 14
MAX_OUTPUT_CHARS = 2048
"""Of one answer; the middle of a longer one is left out."""

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_INSTRUCTIONS = """You may call tools. The tools, as JSON Schema:
<tools>
{tools}
</tools>
To call one, write its name and arguments as JSON between <tool_call> and </tool_call>:
<tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call>"""


class ToolRefusal(Exception):
    """What a tool says to the model in place of an output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A function that a model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments, an object."""
    run: Callable[[Mapping[str, Any]], str]
    """Arguments that keep to the schema -> output. May raise `ToolRefusal`."""
    is_reproducible: bool = True
    """The same arguments give the same output, on every machine and every time."""


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Sequence[Tool], *, max_output_chars: int = MAX_OUTPUT_CHARS) -> None:
        """Raises ValueError: two tools have one name, or a schema is none."""
        self._tools = {tool.name: tool for tool in tools}
        self._schemas = {tool.name: json.dumps(dict(tool.parameters)) for tool in tools}
        self._max_output_chars = max_output_chars
        if len(self._tools) < len(tools):
            raise ValueError(f"tools {[tool.name for tool in tools]}: two have one name")
        for name, schema in self._schemas.items():
            if grade_document(schema, {}, 2).verdict is None:
                raise ValueError(f"parameters of tool {name} are no JSON Schema that can be checked")

    @property
    def is_reproducible(self) -> bool:
        return all(tool.is_reproducible for tool in self._tools.values())

    @property
    def instructions(self) -> str:
        """For a system prompt."""
        return _INSTRUCTIONS.format(tools="\n".join(json.dumps(_described(tool)) for tool in self._tools.values()))

    def answer(self, text: str) -> tuple[Message, ...]:
        """What the model is told when it has said `text`; empty when it called nothing.

        Raises:
            Exception: whatever a tool raises that is no `ToolRefusal`.
        """
        return tuple(Message(role="tool", content=self._cut(self._run(call))) for call in called(text))

    def _run(self, call: str) -> str:
        try:
            tool, arguments = self._read(call)
            return tool.run(arguments)
        except ToolRefusal as refusal:
            return f"error: {refusal}"

    def _read(self, call: str) -> tuple[Tool, Mapping[str, Any]]:
        """Raises ToolRefusal."""
        if len(call) > MAX_CALL_CHARS:
            raise ToolRefusal(f"the call has {len(call)} characters, at most {MAX_CALL_CHARS} are read")
        try:
            value = read_json(call)
        except NotJson as problem:
            raise ToolRefusal(f"the call is no JSON: {problem}") from None
        name = value.get("name") if isinstance(value, dict) else None
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ToolRefusal(f"there is no such tool; there are {', '.join(self._tools)}")
        arguments = value.get("arguments", {})
        decision = grade_document(self._schemas[tool.name], arguments, len(call))
        if decision.verdict != 1.0:
            raise ToolRefusal(f"arguments of {tool.name}: {decision.detail or decision.rule}")
        return tool, arguments

    def _cut(self, output: str) -> str:
        most = self._max_output_chars
        if len(output) <= most:
            return output
        return f"{output[: most // 2]}\n... {len(output) - most} characters left out ...\n{output[-(most // 2) :]}"


def called(text: str) -> list[str]:
    """What stands between the marks of its calls, the first `MAX_CALLS` of them."""
    return [match[1] for _, match in zip(range(MAX_CALLS), _CALL.finditer(text), strict=False)]


def uncalled(text: str) -> str:
    """The text without its calls."""
    return _CALL.sub("", text).strip()


def _described(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
