"""What a client of a recording server was told, as drawn."""

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from farflung.serving.app import Server
from farflung.serving.config import ServeConfig
from farflung.serving.loop import EngineLoop
from farflung.serving.model import load_served
from farflung.serving.recording import Recorder, Session

openai = pytest.importorskip("openai")
ASK = [{"role": "user", "content": "hello"}]


class Served:
    """A recording server, and clients with keys of it."""

    def __init__(self, url: str, recorder: Recorder) -> None:
        self.url, self.recorder = url, recorder

    def client(self, key: str) -> Any:
        return openai.AsyncOpenAI(base_url=self.url, api_key=key, max_retries=0)

    def session(self, key: str) -> Session:
        found = self.recorder.of(key)
        assert found is not None
        return found


@pytest.fixture
async def served(folder: Any) -> Any:
    config = ServeConfig(max_context_tokens=256, default_max_tokens=8)
    model, batch = load_served(folder, config)
    engine, recorder = EngineLoop(batch, max_waiting=16), Recorder(model.tokenizer)
    server = TestServer(Server(config, model, engine, recorder).app())
    async with TestClient(server):
        yield Served(str(server.make_url("/v1")), recorder)
    await engine.close()


async def chat(client: Any, messages: list[dict[str, str]], **options: Any) -> Any:
    return (await client.chat.completions.create(model="tiny", messages=messages, **options)).choices[0]


def continued(messages: list[dict[str, str]], answer: Any, text: str) -> list[dict[str, str]]:
    said = {"role": "assistant", "content": answer.message.content}
    return [*messages, said, {"role": "user", "content": text}]


async def test_a_conversation_keeps_every_token_as_it_was_drawn(served: Served) -> None:
    key = served.recorder.open("1")
    async with served.client(key) as client:
        first = await chat(client, ASK)
        longer = continued(ASK, first, "and then")
        await chat(client, longer, temperature=2)
    one, two = served.session(key).answers
    (whole,) = served.session(key).conversations()
    assert two.prompt.ids[: len(one.prompt.ids) + len(one.tokens)] == (*one.prompt.ids, *one.tokens)
    assert whole.prompt_tokens == list(one.prompt.ids)
    assert [tuple(whole.completion_tokens[start:end]) for start, end in whole.spans] == [one.tokens, two.tokens]
    assert whole.logprobs == [*one.logprobs, *two.logprobs]
    assert whole.prompt_tokens + whole.completion_tokens == [*two.prompt.ids, *two.tokens]


async def test_an_answer_gone_on_from_twice_is_in_two_conversations(served: Served) -> None:
    key = served.recorder.open("1")
    async with served.client(key) as client:
        first = await chat(client, ASK)
        await chat(client, continued(ASK, first, "left"))
        await chat(client, continued(ASK, first, "right"))
    left, right = served.session(key).conversations()
    assert left.spans[0] == right.spans[0]
    assert left.completion_tokens != right.completion_tokens


@pytest.mark.parametrize("changed", ["text", "stop"])
async def test_what_was_changed_or_cut_begins_a_conversation_of_its_own(served: Served, changed: str) -> None:
    key = served.recorder.open("1")
    async with served.client(key) as client:
        whole = await chat(client, ASK, max_tokens=8)
        cut = await chat(client, ASK, max_tokens=8, seed=3, stop=[(await chat(client, ASK, seed=3)).message.content[2]])
        messages = continued(ASK, whole if changed == "text" else cut, "and then")
        if changed == "text":
            messages[1]["content"] += " indeed"
        await chat(client, messages)
    last = served.session(key).answers[-1]
    assert last.prompt.parent is None
    assert len(served.session(key).conversations()) == 4


async def test_choices_streams_and_plain_completions_are_recorded(served: Served) -> None:
    key = served.recorder.open("1")
    async with served.client(key) as client:
        await client.chat.completions.create(model="tiny", messages=ASK, n=2)
        stream = await client.chat.completions.create(model="tiny", messages=ASK, stream=True, max_tokens=5)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        await client.completions.create(model="tiny", prompt="abc", max_tokens=4)
    answers = served.session(key).answers
    assert len(answers) == 4
    assert answers[2].text == text
    assert {answer.ending for answer in answers} <= {"stop", "length"}


async def test_a_client_that_goes_away_leaves_what_was_drawn(served: Served) -> None:
    key, other = served.recorder.open(), served.recorder.open()
    long: dict[str, Any] = {"max_tokens": 200, "temperature": 2}
    async with served.client(key) as client, served.client(other) as bystander:
        seed = 0
        while (await chat(bystander, ASK, seed=seed, **long)).finish_reason != "length":
            seed += 1
        stream = await client.chat.completions.create(model="tiny", messages=ASK, seed=seed, stream=True, **long)
        async for _ in stream:
            break
        await stream.close()
        while not served.session(key).answers:
            await chat(bystander, ASK, max_tokens=1)
    (left,) = served.session(key).answers
    assert left.ending == "left"
    whole = next(each for each in served.session(other).answers if each.ending == "length" and len(each.tokens) == 200)
    assert left.tokens == whole.tokens[: len(left.tokens)]


async def test_the_same_requests_with_the_same_seed_are_answered_the_same(served: Served) -> None:
    texts = []
    for seed in ("7", "7", "8"):
        key = served.recorder.open(seed)
        async with served.client(key) as client:
            texts.append([(await chat(client, ASK)).message.content for _ in range(2)])
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0] != texts[0][1]


async def test_keys_that_were_not_given_out_or_are_closed_are_refused(served: Served) -> None:
    key = served.recorder.open()
    served.recorder.close(key)
    for wrong in ("guessed", key):
        async with served.client(wrong) as client:
            with pytest.raises(openai.AuthenticationError):
                await chat(client, ASK)
