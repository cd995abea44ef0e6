"""Attempts of a harness with the official client, over a model of ours."""

from pathlib import Path

import pytest

from farflung.envs.base import Environment
from farflung.envs.registry import load_environment
from farflung.errors import OurFault
from farflung.model.folder import load_folder
from farflung.model.tokenizer import Tokenizer
from farflung.serving.config import ServeConfig
from farflung.serving.harness.protocol import Attempt, Harness, in_thread
from farflung.serving.harness.runs import Attempted, attempt_tasks, require_asked
from farflung.serving.service import listening

openai = pytest.importorskip("openai")
CONFIG = ServeConfig(port=0, max_context_tokens=256, default_max_tokens=6)


async def attempt(
    folder: Path, harness: Harness, num_samples: int = 2, environment: Environment | None = None
) -> list[Attempted]:
    sums = environment or load_environment("sort-digits", 0, {"num_digits": 2})
    async with listening(folder, CONFIG, is_recording=True) as server:
        return await attempt_tasks(
            server,
            harness,
            sums,
            {index: sums.task("heldout", index) for index in range(3)},
            num_samples=num_samples,
            num_parallel=4,
            seed=5,
        )


def two_turns(attempt: Attempt) -> float:
    """An agent that asks, and asks again with what it was told."""
    with openai.OpenAI(base_url=attempt.base_url, api_key=attempt.api_key, max_retries=0) as client:
        messages = [{"role": "user", "content": "sort the digits"}]
        for text in ("again", "done"):
            answer = client.chat.completions.create(model=attempt.model, messages=messages).choices[0].message.content
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": text}]
    return 0.5 * attempt.sample


def one_turn(attempt: Attempt) -> None:
    with openai.OpenAI(base_url=attempt.base_url, api_key=attempt.api_key, max_retries=0) as client:
        client.chat.completions.create(model=attempt.model, messages=[{"role": "user", "content": "sort"}])


async def test_every_attempt_has_its_conversation_and_its_reward(folder: Path) -> None:
    attempts = await attempt(folder, in_thread(two_turns))
    assert [(each.group, each.sample, each.grade.reward) for each in attempts] == [
        (group, sample, 0.5 * sample) for group in range(3) for sample in range(2)
    ]
    for each in attempts:
        (conversation,) = each.conversations
        assert len(conversation.spans) == 2
        assert each.num_tokens == sum(end - start for start, end in conversation.spans) == len(conversation.logprobs)
    texts = [each.text for each in attempts]
    assert texts == [each.text for each in await attempt(folder, in_thread(two_turns))], "draws are seeded"
    assert len(set(texts)) > 1


async def test_an_attempt_without_a_reward_is_graded_by_the_environment(folder: Path) -> None:
    sums = load_environment("sort-digits", 0, {"num_digits": 2})
    for each in await attempt(folder, in_thread(one_turn), environment=sums):
        assert each.grade == sums.grade(each.task, each.text)


async def test_a_recorded_conversation_is_what_the_tokenizer_reads(folder: Path) -> None:
    (first, *_) = await attempt(folder, in_thread(one_turn))
    tokenizer = Tokenizer.from_files(load_folder(folder).tokenizer_files)
    (conversation,) = first.conversations
    assert conversation.prompt_tokens == tokenizer.encode_chat([{"role": "user", "content": "sort"}])
    assert tokenizer.decode(conversation.completion_tokens) == first.text


async def test_a_problem_is_no_grade_and_does_not_stop_the_others(folder: Path) -> None:
    def sometimes(attempt: Attempt) -> float:
        if attempt.sample:
            raise RuntimeError("lost")
        return two_turns(attempt) + 1

    attempts = await attempt(folder, in_thread(sometimes))
    assert [each.grade.reward for each in attempts] == [1.0, None] * 3
    assert attempts[1].problem == "RuntimeError: lost"


async def test_a_harness_that_asks_nothing_measures_nothing(folder: Path) -> None:
    attempts = await attempt(folder, in_thread(lambda attempt: 1.0))
    with pytest.raises(OurFault, match="never asked the model"):
        require_asked(attempts)
