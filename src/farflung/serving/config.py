"""Settings of the server."""

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.budget_prompt import TOLD, Where


class ServeConfig(Config):
    """Of `farflung serve`."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 = every interface.")
    port: int = Field(8000, ge=0, le=65535, description="0 = any free port.")
    max_concurrency: int = Field(32, ge=1, le=4096, description="Completions in flight; others wait.")
    max_waiting: int = Field(256, ge=0, description="Completions that may wait; more are refused with status 429.")
    max_context_tokens: int = Field(4096, ge=16, description="Most tokens of prompt and completion together.")
    default_max_tokens: int = Field(512, ge=1, description="Completion length where a request names none.")
    max_body_bytes: int = Field(1 << 20, ge=1024, description="Largest request.")
    max_choices: int = Field(16, ge=1, description="Largest n of a request.")
    budget_told: str = Field(
        TOLD, max_length=1000, description="How `thinking_budget` is told in the prompt: as in the model's training."
    )
    budget_where: Where = Field(
        "user", description="After the last user message, at the start, or in the system message."
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads of the engine.")
