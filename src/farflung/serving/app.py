"""The HTTP server: chat completions, completions, models, health.

    POST /v1/chat/completions, /v1/completions    whole or as server-sent events
    GET  /v1/models, /health

A client that goes away takes its completions with it. Does not know the engine's insides.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from farflung.errors import OurFault, UserError
from farflung.serving.answers import Piece, Shape, finish_reason, usage
from farflung.serving.choices import Choice
from farflung.serving.config import ServeConfig
from farflung.serving.errors import ApiError, invalid
from farflung.serving.loop import Busy, EngineLoop
from farflung.serving.model import ServedModel
from farflung.serving.recording import Prompt, Recorder, Session
from farflung.serving.requests import ChatRequest, CompletionRequest, parse_chat, parse_completion
from farflung.serving.text import TextStream

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CLIENT_LEFT = 499
_DONE = b"data: [DONE]\n\n"


class Server:
    """Handlers over one model and one engine."""

    def __init__(
        self, config: ServeConfig, model: ServedModel, engine: EngineLoop, recorder: Recorder | None = None
    ) -> None:
        """
        Args:
            recorder: records what the clients of its keys are told, and lets nobody else in.
        """
        self._config, self._model, self._engine, self._recorder = config, model, engine, recorder

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=self._config.max_body_bytes, middlewares=[_told_as_json])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{model}", self._one_model)
        app.router.add_get("/health", self._health)
        return app

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._description()]})

    async def _one_model(self, request: web.Request) -> web.Response:
        self._check_model(request.match_info["model"])
        return web.json_response(self._description())

    async def _health(self, _request: web.Request) -> web.Response:
        fault = self._engine.fault
        state = {"status": "ok" if fault is None else str(fault), "open_completions": self._engine.num_open}
        return web.json_response(state, status=200 if fault is None else 503)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = parse_chat(await request.read())
        self._check_model(body.model)
        session = self._session(request)
        if session is None:
            prompt = Prompt(ids=tuple(self._model.chat_ids(body.messages, body.thinking_budget)), messages=())
        else:
            prompt = self._chat_prompt(session, body)
        num_top = (body.top_logprobs or 0) if body.logprobs else 0
        return await self._answer(
            request, body, [prompt], session, body.limit_tokens, num_top=num_top, with_logprobs=bool(body.logprobs)
        )

    def _chat_prompt(self, session: Session, body: ChatRequest) -> Prompt:
        try:
            return session.chat(tuple(self._model.plain(body.messages, body.thinking_budget)))
        except UserError as error:
            raise invalid(str(error), "messages") from error

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = parse_completion(await request.read())
        self._check_model(body.model)
        prompts = [Prompt(ids=tuple(self._model.text_ids(prompt)), messages=()) for prompt in body.prompts]
        return await self._answer(
            request,
            body,
            prompts,
            self._session(request),
            body.max_tokens,
            num_top=body.logprobs or 0,
            with_logprobs=body.logprobs is not None,
        )

    def _session(self, request: web.Request) -> Session | None:
        """Of the request's key, where keys are recorded. Raises `ApiError` for a key that is not open."""
        if self._recorder is None:
            return None
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        session = self._recorder.of(key)
        if session is None:
            raise ApiError(401, "this server answers the keys that it gave out and no others", code="invalid_api_key")
        return session

    async def _answer(
        self,
        request: web.Request,
        body: ChatRequest | CompletionRequest,
        prompts: Sequence[Prompt],
        session: Session | None,
        max_tokens: int | None,
        *,
        num_top: int,
        with_logprobs: bool,
    ) -> web.StreamResponse:
        num_choices = body.n or 1
        if not prompts or num_choices * len(prompts) > self._config.max_choices:
            raise invalid(
                f"{len(prompts)} prompts times n = {num_choices}: from 1 to {self._config.max_choices} are possible",
                "n",
            )
        seed = session.next_seed() if session is not None and body.seed is None else body.seed
        requests = [
            live
            for number, prompt in enumerate(prompts)
            for live in self._model.requests(
                list(prompt.ids),
                choices=range(number * num_choices, (number + 1) * num_choices),
                max_tokens=max_tokens,
                default_max_tokens=self._config.default_max_tokens,
                temperature=1.0 if body.temperature is None else body.temperature,
                seed=seed,
                num_top=num_top,
            )
        ]
        asked = [prompt for prompt in prompts for _ in range(num_choices)]
        wanted = [Choice(*each, session=session) for each in zip(asked, requests, strict=True)]
        is_chat = isinstance(body, ChatRequest)
        shape = Shape(self._model.name, self._model.tokenizer, is_chat=is_chat, with_logprobs=with_logprobs)
        num_prompt = sum(len(prompt.ids) for prompt in prompts)
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return await self._send_stream(request, wanted, body.stops, shape, num_prompt, with_usage=with_usage)
        tasks = [asyncio.create_task(self._collect(i, choice, body.stops)) for i, choice in enumerate(wanted)]
        choices = await _all_or_none(tasks)
        num_drawn = sum(len(piece.tokens) for pieces in choices for piece in pieces)
        return web.json_response(shape.whole(choices, usage(num_prompt, num_drawn)))

    async def _collect(self, index: int, choice: Choice, stops: list[str]) -> list[Piece]:
        async with aclosing(self._pieces(index, choice, stops)) as pieces:
            return [piece async for piece in pieces]

    async def _pieces(self, index: int, choice: Choice, stops: list[str]) -> AsyncGenerator[Piece, None]:
        """Text as it becomes certain, with the tokens that made it."""
        text = TextStream(self._model.tokenizer.decode, stops)
        with choice.heard() as heard:
            async with aclosing(self._engine.stream(choice.live)) as tokens:
                async for token in tokens:
                    piece = text.add(token.token)
                    reason = finish_reason(token, is_stopped=text.is_stopped)
                    if reason is not None:
                        piece += text.end()
                        reason = finish_reason(token, is_stopped=text.is_stopped)
                    made = Piece(index=index, text=piece, tokens=(token,), finish_reason=reason)
                    heard.add(made)  # before the client can know that it is over
                    yield made
                    if reason is not None:
                        return

    async def _send_stream(
        self,
        request: web.Request,
        wanted: list[Choice],
        stops: list[str],
        shape: Shape,
        num_prompt: int,
        *,
        with_usage: bool,
    ) -> web.StreamResponse:
        """Server-sent events. The status line waits for the first token, so that a refusal still has its status."""
        merged = _merge([self._pieces(index, choice, stops) for index, choice in enumerate(wanted)])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        num_drawn = 0
        async with aclosing(merged) as pieces:
            async for piece in pieces:
                if not response.prepared:
                    await response.prepare(request)
                    for index in range(len(wanted) if shape.is_chat else 0):
                        await response.write(_event(shape.opening(index)))
                num_drawn += len(piece.tokens)
                await response.write(_event(shape.chunk(piece)))
        if with_usage:
            await response.write(_event(shape.closing(usage(num_prompt, num_drawn))))
        await response.write(_DONE)
        await response.write_eof()
        return response

    def _check_model(self, name: str) -> None:
        if name != self._model.name:
            raise ApiError(404, f"model {name!r} is not here: this is {self._model.name!r}", "model", "model_not_found")

    def _description(self) -> dict[str, Any]:
        return {
            "id": self._model.name,
            "object": "model",
            "created": 0,
            "owned_by": "farflung",
            "max_context_tokens": self._model.max_context_tokens,
        }


@web.middleware
async def _told_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever is refused, in the shape that clients read."""
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response(error.body(), status=error.status)
    except Busy:
        busy = ApiError(429, "too many completions are waiting: try again later", code="busy")
        return web.json_response(busy.body(), status=429, headers={"Retry-After": "1"})
    except web.HTTPRequestEntityTooLarge:
        return web.json_response(ApiError(413, "the request is too large").body(), status=413)
    except web.HTTPException as error:
        return web.json_response(ApiError(error.status, error.reason).body(), status=error.status)
    except ConnectionError:  # the client has left; nobody reads the answer
        return web.Response(status=CLIENT_LEFT)
    except OurFault as error:
        logger.error("%s", error)
        return web.json_response(ApiError(500, str(error)).body(), status=500)


async def _all_or_none(tasks: list["asyncio.Task[list[Piece]]"]) -> list[list[Piece]]:
    """Results in order; the first failure, or our own cancellation, cancels the others."""
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _merge(streams: list[AsyncGenerator[Piece, None]]) -> AsyncGenerator[Piece, None]:
    """Pieces of several streams as they come."""
    ready: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()

    async def pump(stream: AsyncGenerator[Piece, None]) -> None:
        try:
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    await ready.put(piece)
            await ready.put(None)
        except (Busy, OurFault) as error:
            await ready.put(error)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    try:
        num_open = len(tasks)
        while num_open:
            item = await ready.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"
