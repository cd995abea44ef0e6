"""The official client against a running server."""

import asyncio
from typing import Any

import pytest

openai = pytest.importorskip("openai")


@pytest.fixture
async def client(start: Any) -> Any:
    served = await start()
    return openai.AsyncOpenAI(base_url=str(served.make_url("/v1")), api_key="none", max_retries=0)


MESSAGES = [{"role": "system", "content": "be short"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]


async def test_chat_whole_and_streamed(client: Any) -> None:
    async with client:
        whole = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, seed=3, max_completion_tokens=9, logprobs=True, top_logprobs=2, n=2
        )
        assert len(whole.choices) == 2
        assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens - len(
            whole.choices[1].logprobs.content
        )
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, seed=3, max_completion_tokens=9, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole.choices[0].message.content
        told = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, seed=3, max_tokens=9, extra_body={"thinking_budget": 20}
        )
        assert told.usage.prompt_tokens > whole.usage.prompt_tokens


async def test_completions_and_models(client: Any) -> None:
    async with client:
        answer = await client.completions.create(model="tiny", prompt="abc", max_tokens=5, seed=1, logprobs=1)
        assert answer.choices[0].finish_reason in ("stop", "length")
        assert [model.id async for model in client.models.list()] == ["tiny"]


async def test_errors_are_the_clients_own_types(client: Any) -> None:
    async with client:
        with pytest.raises(openai.NotFoundError, match="is not here"):
            await client.chat.completions.create(model="other", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError, match="top_p"):
            await client.chat.completions.create(model="tiny", messages=MESSAGES, top_p=0.5)


async def test_a_cancelled_stream_frees_its_place(client: Any) -> None:
    async with client:
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=2, max_tokens=100, stream=True, seed=2
        )
        async for _ in stream:
            break
        await stream.close()
        await asyncio.sleep(0)
        assert (await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=3)).choices
