"""A model that this package serves, as the judge of answers."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from farflung.envs.graders.judge import SameConfig, SameRules
from farflung.envs.graders.judge_bench import Bench
from farflung.envs.graders.judge_client import URL_VARIABLE, Endpoint, Trouble
from farflung.envs.graders.judge_grader import JudgeGrader
from farflung.envs.graders.judge_prompt import JudgeMessage, Labels
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder

PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can read a prompt; what it says means nothing, and it is sure of it."""
    path = tmp_path_factory.mktemp("served") / "tiny"
    tokenizer = character_tokenizer(PRINTABLE)
    config = tiny_config(tokenizer, hidden_size=16, num_heads=2, intermediate_size=16, num_layers=1)
    save_folder(path, config, random_state(config, 0, std=3.0), tokenizer.files)
    return path


async def test_a_served_model_is_asked_and_what_it_babbles_is_no_verdict(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await start(max_context_tokens=2048)
    monkeypatch.setenv(URL_VARIABLE, str(client.make_url("/v1")))
    bench = Bench(Endpoint(model="tiny", label_ids={}), SameConfig(), random.Random(0))
    grader = JudgeGrader(bench, SameRules(SameConfig()))
    decision = await asyncio.to_thread(
        grader.grade, '{"answer": "Paris", "question": "Where?"}', "<answer>Lutetia</answer>"
    )
    assert (decision.verdict, decision.rule) == (None, Trouble.GARBAGE.value)


async def test_a_served_models_most_likely_token_is_its_verdict(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters are chosen so that one of them is what this model says anyway."""
    client = await start(max_context_tokens=2048)
    monkeypatch.setenv(URL_VARIABLE, str(client.make_url("/v1")))
    messages = (JudgeMessage("user", "Is it?"),)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Is it?"}], "max_tokens": 1, "temperature": 0}
    reply = await (await client.post("/v1/chat/completions", json=body)).json()
    says = reply["choices"][0]["message"]["content"]
    deadline_s = asyncio.get_running_loop().time() + 10

    def ask(labels: Labels) -> float:
        return Endpoint(model="tiny", label_ids={}).ask(messages, labels, deadline_s)

    assert await asyncio.to_thread(ask, Labels(says, "\x00")) == 1.0
    assert await asyncio.to_thread(ask, Labels("\x00", says)) == 0.0
