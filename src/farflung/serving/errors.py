"""What a client is told when a request cannot be served, in the shape that OpenAI's clients read."""

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class ApiError(Exception):
    """A refusal with its HTTP status."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Status 400."""
    return ApiError(400, message, param, code)
