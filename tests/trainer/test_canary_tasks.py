"""Versions measured on a test set that the run is not trained on."""

from typing import Any

import pytest

from farflung.envs.graders.judge_client import URL_VARIABLE
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.trainer.canary_tasks import canary_environment
from farflung.trainer.config import TrainerConfig
from farflung.trainer.setup import set_up
from tiny_pool import description, environment, pool_spec, trainer_config

OTHER: dict[str, Any] = {"environment": "sort-digits", "environment_args": {"num_digits": 3}}


class Words:
    """One token a word."""

    def encode(self, text: str) -> list[int]:
        return [0 for _ in text.split()]

    def encode_chat(self, messages: Any) -> list[int]:
        return self.encode(" ".join(message.content for message in messages))

    def decode(self, ids: Any) -> str:
        return ""


def config(evaluation: dict[str, Any], **changes: Any) -> TrainerConfig:
    return TrainerConfig.model_validate({"evaluation": evaluation, "warm_start": {"max_steps": 0}, **changes})


def chosen(evaluation: dict[str, Any], max_context_tokens: int = 2048, **changes: Any) -> Any:
    return canary_environment(config(evaluation, **changes), environment(), Words(), pool_spec(), max_context_tokens)


def test_without_a_name_it_is_the_pools_own() -> None:
    own = environment()
    assert canary_environment(config({}), own, Words(), pool_spec(), 2048) is own


def test_a_test_set_is_measured_with_its_own_grader() -> None:
    gsm8k = chosen({"environment": "gsm8k-100"})
    task = gsm8k.task("heldout", 0)
    assert (gsm8k.name, gsm8k.num_heldout_tasks) == ("gsm8k-100", 100)
    assert gsm8k.grade(task, f"\\boxed{{{task.answer}}}").reward == 1.0


def test_the_canary_of_a_run_samples_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = trainer_config().model_dump()
    settings["evaluation"] |= {**OTHER, "num_tasks": 4}
    settings["warm_start"]["max_steps"] = 0
    setup = set_up(TrainerConfig.model_validate(settings), pool_spec(), 0, None)
    evaluation = setup.canary.evaluate(setup.learner.policy, 0)
    heldout = load_environment("sort-digits", pool_spec().environment.seed, {"num_digits": 3})
    assert [rollout.task for rollout in evaluation.rollouts] == [heldout.task("heldout", index) for index in range(4)]
    assert setup.environment.task("train", 0).messages[0].content.count(">") == 1
    assert description().tokenizer.digest == setup.description.tokenizer.digest


@pytest.mark.parametrize(
    ("evaluation", "changes", "sentence"),
    [
        ({"environment": "gsm8k"}, {}, "did you mean gsm8k-100"),
        ({"environment": "gsm8k-100", "environment_args": {"grader": "math@99"}}, {}, "math@99 is not known here"),
        ({"environment": "gsm8k-100", "environment_args": {"grader": "judge@1"}}, {}, URL_VARIABLE),
        ({"environment": "gsm8k-100"}, {"max_context_tokens": 60}, "has a prompt of .* tokens; the model has room"),
        ({"environment": "gsm8k-100"}, {"warm_start": {"max_steps": 5}}, "leave the environment out"),
    ],
)
def test_what_cannot_be_measured_is_said_at_the_start(
    evaluation: dict[str, Any], changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(UserError, match=sentence):
        chosen(evaluation, **changes)


def test_characters_that_the_model_cannot_read_are_said_at_the_start() -> None:
    with pytest.raises(UserError):
        canary_environment(
            config({"environment": "gsm8k-100"}), environment(), description().tokenizer, pool_spec(), 10_000
        )
