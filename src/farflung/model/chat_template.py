"""Chat templates: messages -> prompt text, by a Jinja template that may come from a stranger's model folder.

Rendered in a sandbox without clock, files or attribute access to internals, so that worker and validator get the same
text. The environment (trimmed blocks, loop controls, `tojson`, `raise_exception`, `{% generation %}`) is that of
Hugging Face's `apply_chat_template`; `strftime_now` is left out on purpose.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from farflung.errors import UserError

MAX_TEMPLATE_BYTES = 1 << 20

Message = Mapping[str, Any]
"""At least `role` and `content`."""


class ChatTemplate:
    """A compiled template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile.

        Args:
            special_tokens: variables such as `bos_token` that templates expect.

        Raises:
            UserError: too long, or not a Jinja template.
        """
        num_bytes = len(source.encode())
        if num_bytes > MAX_TEMPLATE_BYTES:
            raise UserError(f"the chat template has {num_bytes} bytes: at most {MAX_TEMPLATE_BYTES} are allowed")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise UserError(f"the tokenizer's chat template is not valid Jinja: {error}") from error
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The prompt's text.

        Raises:
            UserError: the template refuses these messages, or fails on them.
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise UserError(f"the chat template fails on these messages: {error}") from error


class _GenerationBlock(Extension):
    """`{% generation %} ... {% endgeneration %}` marks the assistant's text for other tools; here it is plain text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """What published templates pass; Jinja's own filter would escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
