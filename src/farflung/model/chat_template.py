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
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from farflung.errors import UserError

MAX_TEMPLATE_BYTES = 1 << 20

_MAX_EXPONENT = 64
_MAX_INDENT = 16

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
        environment = _Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        environment.filters["tojson"] = _to_json
        for name in ("center", "format"):  # widths of any size, which no published template asks for
            del environment.filters[name]
        del environment.globals["lipsum"]
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
        except (
            TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise UserError(f"the chat template fails on these messages: {error}") from error


class _Bounded(ImmutableSandboxedEnvironment):
    """Products, powers and formats of a template stay small: a few characters of it must not make gigabytes."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Raises TemplateError for what would be large."""
        if operator == "**" and isinstance(right, int) and abs(right) > _MAX_EXPONENT:
            raise TemplateError(f"a power of {right} in a chat template")
        if operator == "%" and isinstance(left, (str, bytes)):
            raise TemplateError("a format in a chat template")
        for many, times in ((left, right), (right, left)):
            is_product = operator == "*" and isinstance(times, int) and isinstance(many, (str, bytes, list, tuple))
            if is_product and len(many) * times > MAX_TEMPLATE_BYTES:
                raise TemplateError(f"{times} times {type(many).__name__} in a chat template")
        return super().call_binop(context, operator, left, right)


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
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateError(f"an indent of {indent} in a chat template")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
