"""One question to a judge over an OpenAI-compatible endpoint, and the odds of its answer letters.

    FARFLUNG_JUDGE_URL   base address, for example http://127.0.0.1:8000/v1; `farflung serve MODEL` is one
    FARFLUNG_JUDGE_KEY   sent as a bearer token, if set

Where and with which key is the operator's business and stands in no record; which model is asked is a rule of the pool.
One token is asked for. Only that token counts: its log-probabilities if the endpoint gives them, else the text of the
reply if it is one of the letters and nothing else. No pattern is ever looked for in what a judge writes.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from farflung.envs.graders.judge_prompt import JudgeMessage, Labels
from farflung.errors import UserError

if TYPE_CHECKING:
    from aiohttp import ClientResponse

URL_VARIABLE = "FARFLUNG_JUDGE_URL"
KEY_VARIABLE = "FARFLUNG_JUDGE_KEY"
MAX_REPLY_BYTES = 1 << 18
NUM_TOP_LOGPROBS = 20
"""The most that the API allows."""
MIN_MASS = 0.5
"""Of probability on the two letters together; below it the judge has not answered the question."""
BIAS = 100
"""Most of the API: tokens with it are drawn before all others."""


class Trouble(StrEnum):
    """Why there is no answer; each is nobody's fault and no verdict."""

    UNAVAILABLE = "judge_unavailable"
    TIMEOUT = "judge_timeout"
    GARBAGE = "judge_garbage"
    BUDGET = "judge_budget_spent"


class NoBallot(Exception):
    """The judge has not answered."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(f"{trouble}: {detail}")
        self.trouble = trouble
        self.detail = detail


class JudgeModel(Protocol):
    def ask(self, messages: Sequence[JudgeMessage], labels: Labels, deadline_s: float) -> float:
        """Probability of yes over that of yes and no, in [0, 1].

        Args:
            deadline_s: on the monotonic clock; the call is over by then.

        Raises:
            NoBallot: down, slow, or no answer to the question.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible endpoint; implements `JudgeModel`."""

    model: str
    label_ids: Mapping[str, int]
    """Letter -> id of its token, for endpoints that take `logit_bias`; empty = it is not sent."""

    def ask(self, messages: Sequence[JudgeMessage], labels: Labels, deadline_s: float) -> float:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": each.role, "content": each.content} for each in messages],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": NUM_TOP_LOGPROBS,
        }
        if self.label_ids:
            body["logit_bias"] = {str(self.label_ids[label]): BIAS for label in (labels.yes, labels.no)}
        return odds_of_yes(_in_thread(body, deadline_s), labels)


def require_endpoint() -> None:
    """Raises `UserError` where no judge is named."""
    _url()


class _Top(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class _Token(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    top_logprobs: tuple[_Top, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True):
    content: tuple[_Token, ...] | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]


def odds_of_yes(data: bytes, labels: Labels) -> float:
    """Read a reply. Raises `NoBallot` if it is no answer to the question."""
    try:
        choice = msgspec.json.decode(data, type=_Reply).choices[0]
    except (msgspec.DecodeError, IndexError, RecursionError, UnicodeError):
        raise NoBallot(Trouble.GARBAGE, "the reply is no chat completion") from None
    if choice.logprobs is not None and choice.logprobs.content:
        yes, no = _masses(choice.logprobs.content[0], labels)
    else:
        said = (choice.message.content or "").strip()
        yes, no = float(said == labels.yes), float(said == labels.no)
    if not yes + no >= MIN_MASS:
        raise NoBallot(Trouble.GARBAGE, "the first token is neither of the letters")
    return yes / (yes + no)


def _masses(token: _Token, labels: Labels) -> tuple[float, float]:
    """Probabilities of yes and of no, with and without white space before the letter."""
    logprobs = {token.token: token.logprob, **{each.token: each.logprob for each in token.top_logprobs}}
    masses = [
        sum(math.exp(min(value, 0.0)) for text, value in logprobs.items() if text.strip() == label)
        for label in (labels.yes, labels.no)
    ]
    return masses[0], masses[1]


def _in_thread(body: Mapping[str, Any], deadline_s: float) -> bytes:
    """Run the request in a thread with a loop of its own, since the caller may live in a running one.

    Raises:
        NoBallot: down or slow.
    """
    outcome: list[bytes | NoBallot] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(_post(body, deadline_s)))
        except NoBallot as trouble:
            outcome.append(trouble)

    thread = threading.Thread(target=run, name="judge", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline_s - time.monotonic()) + 1.0)
    if not outcome:
        raise NoBallot(Trouble.TIMEOUT, "the judge has not answered in time")
    if isinstance(outcome[0], NoBallot):
        raise outcome[0]
    return outcome[0]


async def _post(body: Mapping[str, Any], deadline_s: float) -> bytes:
    import aiohttp  # takes a quarter of a second, in every process that grades anything

    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise NoBallot(Trouble.TIMEOUT, "no time is left to ask")
    key = os.environ.get(KEY_VARIABLE)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=left_s)) as session,
            session.post(f"{_url()}/chat/completions", json=body, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise NoBallot(Trouble.UNAVAILABLE, f"the judge answers with status {response.status}")
            return await _bounded(response)
    except TimeoutError:
        raise NoBallot(Trouble.TIMEOUT, "the judge has not answered in time") from None
    except (aiohttp.ClientError, OSError, UserError) as error:
        raise NoBallot(Trouble.UNAVAILABLE, f"{type(error).__name__}: {error}"[:200]) from None


async def _bounded(response: "ClientResponse") -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 14):
        data += chunk
        if len(data) > MAX_REPLY_BYTES:
            raise NoBallot(Trouble.GARBAGE, f"the reply has more than {MAX_REPLY_BYTES} bytes")
    return bytes(data)


def _url() -> str:
    url = os.environ.get(URL_VARIABLE, "").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise UserError(
            f"{URL_VARIABLE} is {url!r}: set it to the address of the judge, for example http://127.0.0.1:8000/v1"
        )
    return url
