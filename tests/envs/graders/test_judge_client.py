"""The endpoint: what is sent, what counts as an answer, and what becomes of every kind of trouble."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.graders.judge_client import (
    KEY_VARIABLE,
    MAX_REPLY_BYTES,
    URL_VARIABLE,
    Endpoint,
    NoBallot,
    Trouble,
    odds_of_yes,
    require_endpoint,
)
from farflung.envs.graders.judge_prompt import JudgeMessage, Labels
from farflung.errors import UserError

LABELS = Labels("K", "T")
MESSAGES = (JudgeMessage("system", "s"), JudgeMessage("user", "u"))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reply(content: str | None, top: dict[str, float] | None = None) -> dict[str, Any]:
    """A chat completion whose first token has these probabilities."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": "length",
    }
    if top is not None:
        tops = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in top.items()]
        choice["logprobs"] = {"content": [{**tops[0], "top_logprobs": tops}]}
    return {"id": "x", "object": "chat.completion", "choices": [choice]}


class Server:
    """One handler on loopback, in a thread with a loop of its own, as a judge is elsewhere."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.answer: Handler = self._not_told
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait()

    async def _not_told(self, request: web.Request) -> web.StreamResponse:
        raise AssertionError("the test has not said what to answer")

    def says(self, body: Any) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response(body)

        self.answer = answer

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((dict(request.headers), await request.json()))
        return await self.answer(request)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    running = Server()
    monkeypatch.setenv(URL_VARIABLE, running.url)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    yield running
    running.close()


def ask(timeout_s: float = 5.0, **endpoint: Any) -> float:
    model = Endpoint(**{"model": "m", "label_ids": {}, **endpoint})
    return model.ask(MESSAGES, LABELS, time.monotonic() + timeout_s)


def trouble_of(timeout_s: float = 5.0) -> Trouble:
    with pytest.raises(NoBallot) as raised:
        ask(timeout_s)
    return raised.value.trouble


def test_one_token_is_asked_for_with_its_probabilities(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "sesame")
    server.says(reply("K", {"K": 0.6, " K": 0.1, "T": 0.2, "the": 0.1}))
    assert ask(label_ids={"K": 7, "T": 9}) == pytest.approx(0.7 / 0.9)
    ((headers, body),) = server.requests
    assert headers["Authorization"] == "Bearer sesame"
    assert (body["max_tokens"], body["temperature"], body["logprobs"]) == (1, 0, True)
    assert body["logit_bias"] == {"7": 100, "9": 100}
    assert body["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def test_without_a_key_and_ids_neither_is_sent(server: Server) -> None:
    server.says(reply(" K\n"))
    assert ask() == 1.0
    ((headers, body),) = server.requests
    assert "Authorization" not in headers
    assert "logit_bias" not in body


def test_it_works_from_within_a_running_loop(server: Server) -> None:
    server.says(reply("T"))

    async def inside() -> float:
        return ask()

    assert asyncio.run(inside()) == 0.0


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "K",
        {"choices": []},
        {"choices": [{"message": {"content": 3}}]},
        reply(None),
        reply(""),
        reply("KT"),
        reply("K because"),
        reply("The rating is [[K]]"),
        reply("k"),
        reply("K", {"The": 0.9, "K": 0.05}),
    ],
)
def test_what_is_no_letter_is_garbage(server: Server, body: Any) -> None:
    server.says(body)
    assert trouble_of() is Trouble.GARBAGE


def test_only_the_first_token_counts_where_probabilities_are_given() -> None:
    body = reply("TK", {"T": 0.9, "K": 0.1})
    body["choices"][0]["logprobs"]["content"].append({"token": "K", "logprob": 0.0, "top_logprobs": []})
    assert odds_of_yes(json.dumps(body).encode(), LABELS) == pytest.approx(0.1)


def test_a_judge_that_refuses_is_unavailable(server: Server) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response(reply("K"), status=503)

    server.answer = refuse
    assert trouble_of() is Trouble.UNAVAILABLE


def test_a_redirect_is_not_followed(server: Server) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:1/")

    server.answer = elsewhere
    assert trouble_of() is Trouble.UNAVAILABLE


def test_a_slow_judge_is_a_timeout_even_if_it_drips(server: Server) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    server.answer = drip
    assert trouble_of(timeout_s=0.3) is Trouble.TIMEOUT
    assert trouble_of(timeout_s=-1.0) is Trouble.TIMEOUT


def test_an_endless_reply_is_cut_off(server: Server) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * (2 * MAX_REPLY_BYTES))
        return response

    server.answer = flood
    assert trouble_of() is Trouble.GARBAGE


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "ftp://x", ""])
def test_nobody_there_is_unavailable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    assert trouble_of() is Trouble.UNAVAILABLE


def test_a_machine_without_an_address_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(UserError, match=URL_VARIABLE):
        require_endpoint()


@given(data=st.binary())
def test_no_bytes_make_reading_a_reply_fail_otherwise(data: bytes) -> None:
    with pytest.raises(NoBallot):
        odds_of_yes(data, LABELS)
