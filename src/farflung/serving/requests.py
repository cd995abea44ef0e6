"""Bodies of chat and completion requests, checked field by field.

The fields are OpenAI's; what the engine cannot do is refused by name, never ignored: top_p (answers are draws from the
whole distribution), penalties, tools. `thinking_budget` is ours: tokens that the model is told to think for.
"""

import json
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from farflung.serving.errors import invalid

MAX_STOPS = 4
MIN_TEMPERATURE = 0.01
"""Below it answers are greedy in all but name, and logits divided by it leave float32."""
MAX_TOP_LOGPROBS = 20


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TextPart(_Body):
    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(_Body):
    include_usage: bool = False


class _Sampling(_Body):
    """What chat and completions share."""

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    """0 = greedy; else at least `MIN_TEMPERATURE`."""
    n: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    # Only the values that change nothing are taken:
    top_p: float | None = Field(None, ge=1, le=1)
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    presence_penalty: float | None = Field(None, ge=0, le=0)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


class ChatRequest(_Sampling):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    thinking_budget: int | None = Field(None, ge=1)

    @property
    def limit_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(_Sampling):
    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or several, as text or as ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]


B = TypeVar("B", bound=_Body)


def parse_chat(body: bytes) -> ChatRequest:
    """Raises `ApiError` with status 400, naming the first wrong field."""
    request = _parse(ChatRequest, body)
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs is given without logprobs: set logprobs to true", "top_logprobs")
    return request


def parse_completion(body: bytes) -> CompletionRequest:
    """Raises `ApiError` with status 400, naming the first wrong field."""
    return _parse(CompletionRequest, body)


def _parse(kind: type[B], body: bytes) -> B:
    try:
        table = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise invalid("the body must be a JSON object")
    try:
        request = kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"][:3]) or None
        if first["type"] == "extra_forbidden":
            raise invalid(f"{param} is not supported", param, "unsupported_parameter") from error
        if param in ("top_p", "frequency_penalty", "presence_penalty"):
            raise invalid(
                f"{param} is {first['input']!r}: answers here are draws from the model's whole distribution; "
                "leave it out and use temperature",
                param,
                "unsupported_value",
            ) from error
        raise invalid(f"{param}: {first['msg'].lower()}", param) from error
    temperature = getattr(request, "temperature", None)
    if temperature is not None and 0 < temperature < MIN_TEMPERATURE:
        raise invalid(
            f"temperature is {temperature}: it must be 0, which is greedy, or at least {MIN_TEMPERATURE}", "temperature"
        )
    return request
