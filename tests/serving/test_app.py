"""The API from outside: answers, streams, refusals, clients that leave."""

import asyncio
import json
from typing import Any

import pytest
import torch
from aiohttp.test_utils import TestClient

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "seed": 1, "max_tokens": 12, **changes}


def plain(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hello", "seed": 1, "max_tokens": 12, **changes}


async def post(client: TestClient, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    response = await client.post(path, json=body)
    return response.status, await response.json()


async def events(client: TestClient, path: str, body: Any) -> list[dict[str, Any]]:
    response = await client.post(path, json={**body, "stream": True})
    assert response.status == 200
    assert response.content_type == "text/event-stream"
    lines = [line for line in (await response.text()).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_a_seed_gives_the_same_answer_alone_and_in_a_crowd(start: Any) -> None:
    client = await start()
    _, alone = await post(client, CHAT, chat())
    crowd = await asyncio.gather(*(post(client, CHAT, chat(seed=seed, max_tokens=5 + seed)) for seed in range(2, 9)),
                                 post(client, CHAT, chat()))  # fmt: skip
    assert crowd[-1][1]["choices"] == alone["choices"]
    assert len({answer["choices"][0]["message"]["content"][:4] for _, answer in crowd}) > 3
    assert alone["usage"]["completion_tokens"] <= 12


async def test_a_stream_spells_the_whole_answer(start: Any) -> None:
    client = await start()
    _, whole = await post(client, CHAT, chat(n=3))
    chunks = await events(client, CHAT, chat(n=3, stream_options={"include_usage": True}))
    for choice in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == [choice["finish_reason"]]
    assert chunks[-1]["usage"] == whole["usage"]
    assert len({choice["message"]["content"] for choice in whole["choices"]}) == 3


async def test_completions_take_text_ids_and_lists(start: Any) -> None:
    client = await start()
    _, one = await post(client, PLAIN, plain())
    _, two = await post(client, PLAIN, plain(prompt=["hello", "hello"]))
    assert two["choices"][0]["text"] == one["choices"][0]["text"] != two["choices"][1]["text"]
    ids = [5, 6, 7]
    _, by_id = await post(client, PLAIN, plain(prompt=ids))
    assert by_id["usage"]["prompt_tokens"] == 3
    streamed = await events(client, PLAIN, plain(prompt=ids))
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == by_id["choices"][0]["text"]


async def test_logprobs_are_those_of_the_distribution_that_was_drawn_from(start: Any) -> None:
    client = await start()
    _, answer = await post(client, CHAT, chat(logprobs=True, top_logprobs=20, temperature=0.5))
    for entry in answer["choices"][0]["logprobs"]["content"]:
        tops = [top["logprob"] for top in entry["top_logprobs"]]
        assert tops == sorted(tops, reverse=True)
        assert torch.tensor(tops).exp().sum() <= 1 + 1e-5
        assert entry["logprob"] <= tops[0] + 1e-6
    _, old = await post(client, PLAIN, plain(logprobs=2))
    table = old["choices"][0]["logprobs"]
    assert len(table["tokens"]) == len(table["token_logprobs"]) == len(table["top_logprobs"])


async def test_a_stop_string_ends_the_answer_and_is_not_in_it(start: Any) -> None:
    client = await start()
    _, whole = await post(client, PLAIN, plain(max_tokens=40))
    text = whole["choices"][0]["text"]
    stop = text[3:5]
    _, cut = await post(client, PLAIN, plain(max_tokens=40, stop=["never there", stop]))
    assert cut["choices"][0] == {**whole["choices"][0], "text": text[: text.index(stop)], "finish_reason": "stop"}
    assert cut["usage"]["completion_tokens"] < whole["usage"]["completion_tokens"]


async def test_a_thinking_budget_is_told_to_the_model(start: Any) -> None:
    client = await start()
    _, without = await post(client, CHAT, chat())
    status, told = await post(client, CHAT, chat(thinking_budget=100))
    assert status == 200
    assert told["usage"]["prompt_tokens"] > without["usage"]["prompt_tokens"] + 20


async def test_a_budget_is_told_in_the_words_of_the_models_training(start: Any) -> None:
    client = await start(budget_told="{target}>", budget_where="start")
    _, told = await post(client, CHAT, chat(messages=[{"role": "user", "content": "abc"}], thinking_budget=24))
    _, by_hand = await post(client, CHAT, chat(messages=[{"role": "user", "content": "24>abc"}]))
    assert told["choices"] == by_hand["choices"]
    assert told["usage"] == by_hand["usage"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (CHAT, chat(model="gpt-9"), 404, ["gpt-9", "tiny"]),
        (CHAT, chat(messages=[]), 400, ["messages"]),
        (CHAT, chat(messages=[{"role": "robot", "content": "x"}]), 400, ["messages.0.role"]),
        (CHAT, chat(messages=[{"role": "user", "content": "\u4f60"}]), 400, ["cannot spell"]),
        (CHAT, chat(temperature=3), 400, ["temperature"]),
        (CHAT, chat(temperature=1e-38), 400, ["1e-38", "at least 0.01"]),
        (CHAT, chat(messages=[{"role": "user", "content": "a\ud800"}]), 400, ["lone surrogate"]),
        (PLAIN, plain(prompt="a\ud800"), 400, ["lone surrogate"]),
        (CHAT, chat(temperature="hot"), 400, ["temperature"]),
        (CHAT, chat(top_p=0.9), 400, ["top_p", "temperature"]),
        (CHAT, chat(tools=[]), 400, ["tools is not supported"]),
        (CHAT, chat(n=17), 400, ["16"]),
        (CHAT, chat(n=0), 400, ["n:"]),
        (CHAT, chat(max_tokens=127), 400, ["128"]),
        (CHAT, chat(top_logprobs=3), 400, ["logprobs"]),
        (CHAT, chat(stop=["a"] * 5), 400, ["stop"]),
        (CHAT, [1], 400, ["JSON object"]),
        (PLAIN, plain(prompt=[]), 400, ["prompt"]),
        (PLAIN, plain(prompt=""), 400, ["empty"]),
        (PLAIN, plain(prompt=[10**9]), 400, ["1000000000", "vocabulary"]),
        (PLAIN, plain(prompt="a" * 200), 400, ["128"]),
        ("/v1/embeddings", {}, 404, ["Not Found"]),
        ("/v1/models", {}, 405, ["Method Not Allowed"]),
    ],
)
async def test_a_refusal_names_the_field_in_the_shape_that_clients_read(
    start: Any, path: str, body: Any, status: int, words: list[str]
) -> None:
    client = await start()
    got, answer = await post(client, path, body)
    assert got == status
    assert {"message", "type", "param", "code"} <= answer["error"].keys()
    assert [word for word in words if word not in answer["error"]["message"]] == []
    assert (await client.get("/health")).status == 200


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"model": "tiny", "n": 1e999}'])
async def test_a_broken_body_is_refused(start: Any, data: bytes) -> None:
    client = await start()
    assert (await client.post(CHAT, data=data)).status == 400


async def test_a_large_body_is_refused(start: Any) -> None:
    client = await start(max_body_bytes=2000)
    status, answer = await post(client, CHAT, chat(user="a" * 3000))
    assert (status, answer["error"]["message"]) == (413, "the request is too large")


async def test_more_than_may_wait_are_told_to_come_again(start: Any) -> None:
    client = await start(max_concurrency=2, max_waiting=1)
    answers = await asyncio.gather(*(post(client, CHAT, chat(seed=seed, max_tokens=60)) for seed in range(8)))
    statuses = [status for status, _ in answers]
    assert statuses.count(200) >= 3
    assert statuses.count(429) >= 1
    assert client.engine.num_open == 0


async def test_a_client_that_leaves_takes_its_completions_along(start: Any) -> None:
    client = await start(max_concurrency=1)
    response = await client.post(CHAT, json=chat(max_tokens=110, stream=True, temperature=2, seed=5))
    await response.content.readany()
    response.close()
    for _ in range(200):
        await asyncio.sleep(0.01)
        if client.engine.num_open == 0:
            break
    assert client.engine.num_open == 0
    assert (await post(client, CHAT, chat()))[0] == 200


async def test_models_are_listed(start: Any) -> None:
    client = await start()
    listed = await (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["tiny"]
    assert (await client.get("/v1/models/tiny")).status == 200
    assert (await client.get("/v1/models/other")).status == 404


async def test_broken_weights_are_told_and_stay_told(start: Any) -> None:
    client = await start()
    with torch.no_grad():
        client.engine._batch._model_rows._decoder.norm.weight.fill_(torch.nan)
    for body in (chat(), chat(stream=True)):
        response = await client.post(CHAT, json=body)
        assert response.status == 500
        assert "not finite" in (await response.json())["error"]["message"]
    assert (await client.get("/health")).status == 503


async def test_a_message_cannot_spell_a_turn_of_its_own(start: Any) -> None:
    client = await start()
    status, told = await post(client, CHAT, chat(messages=[{"role": "user", "content": "a⟨eos⟩b"}]))
    assert status == 400
    assert "special token" in told["error"]["message"]
    assert told["error"]["param"] == "messages.0.content"
