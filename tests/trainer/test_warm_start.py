from collections.abc import Callable
from typing import Any

import pytest
import torch

from farflung.envs.base import Environment
from farflung.envs.playing import EpisodeLimits
from farflung.errors import UserError
from farflung.trainer.config import WarmStartConfig
from farflung.trainer.policy import Policy
from farflung.trainer.warm_start import warm_start
from farflung.wire.task import Task
from tiny_pool import NUM_TASKS, description, environment, tiny_policy


class Watched:
    """The environment, with a list of the training tasks that were shown."""

    def __init__(self, demonstration: Callable[[Task, int], str | None] | None = None) -> None:
        self.shown: list[tuple[str, int]] = []
        self._demonstration = demonstration

    def __getattr__(self, name: str) -> Any:
        return getattr(environment(), name)

    def task(self, split: Any, index: int, target_length: int = 0) -> Task:
        self.shown.append((split, index))
        return environment().task(split, index, target_length)

    def demonstration(self, task: Task, draw: int) -> str | None:
        return self._demonstration(task, draw) if self._demonstration else environment().demonstration(task, draw)


def start(
    policy: Policy,
    *,
    env: Any = None,
    accuracy: Callable[[], float] = lambda: 0.0,
    should_stop: Callable[[], bool] = lambda: False,
    **config: Any,
) -> tuple[float, list[tuple[int, float, float]]]:
    reports: list[tuple[int, float, float]] = []
    settings = {"max_steps": 12, "batch_size": 8, "eval_every_steps": 5, "lr": 1e-2, "warmup_steps": 2} | config
    chosen: Environment = env or environment()
    reached = warm_start(
        policy,
        chosen,
        description().tokenizer,
        EpisodeLimits(max_prompt_tokens=64, max_completion_tokens=64, eos_token_ids=frozenset([1])),
        description().config.eos_token_ids[0],
        WarmStartConfig(**settings),
        measure_accuracy=accuracy,
        report=lambda step, loss, value: reports.append((step, loss, value)),
        should_stop=should_stop,
    )
    return reached, reports


def test_the_loss_falls_and_is_measured_every_few_steps_and_at_the_end() -> None:
    _, reports = start(tiny_policy(), max_steps=42, eval_every_steps=20)
    assert [step for step, _, _ in reports] == [20, 40, 42]
    assert reports[-1][1] < 0.7 * reports[0][1]


def test_it_stops_as_soon_as_the_accuracy_is_reached() -> None:
    values = iter([0.1, 0.29, 0.3, 0.9])
    reached, reports = start(tiny_policy(), accuracy=lambda: next(values), target_accuracy=0.3, eval_every_steps=2)
    assert reached == 0.3
    assert [step for step, _, _ in reports] == [2, 4, 6]


def test_it_stops_when_asked_to() -> None:
    reached, reports = start(tiny_policy(), accuracy=lambda: 0.2, should_stop=lambda: True)
    assert (reached, len(reports)) == (0.2, 1)


def test_the_published_weights_follow_at_each_measurement() -> None:
    policy = tiny_policy()
    seen: list[torch.Tensor] = []

    def measure() -> float:
        for published, master in zip(policy.published.parameters(), policy.masters.parameters(), strict=True):
            assert torch.equal(published, master.to(torch.bfloat16).float())
        seen.append(policy.published.embed_tokens.detach().clone())
        return 0.0

    start(policy, accuracy=measure)
    assert len(seen) == 3
    assert not torch.equal(seen[0], seen[1])


def test_it_leaves_the_optimizer_of_the_run_alone() -> None:
    policy = tiny_policy()
    start(policy)
    assert policy.optimizer_state() == {}
    assert all(parameter.grad is None for parameter in policy.published.parameters())


def test_it_shows_training_tasks_from_the_last_backwards_and_begins_again() -> None:
    watched = Watched()
    start(tiny_policy(), env=watched, max_steps=12, batch_size=8)
    assert watched.shown == [("train", NUM_TASKS - 1 - draw % NUM_TASKS) for draw in range(96)]


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second = tiny_policy(), tiny_policy()
    start(first)
    start(second)
    assert all(torch.equal(v, second.masters_state()[name]) for name, v in first.masters_state().items())


def test_only_the_answer_is_learned_with_its_end() -> None:
    """The first step's loss is the mean of -log p over answer and end-of-sequence tokens alone."""
    from farflung.model.head import token_logprobs
    from farflung.model.layout import SequenceLayout

    policy, fresh = tiny_policy(), tiny_policy()
    task = environment().task("train", NUM_TASKS - 1)
    prompt = description().tokenizer.encode_chat(task.messages)
    tokens = torch.tensor(
        [*prompt, *description().tokenizer.encode(task.answer), description().config.eos_token_ids[0]]
    )
    _, reports = start(policy, max_steps=1, batch_size=1)
    with torch.no_grad():
        hidden = fresh.masters(tokens[:-1], SequenceLayout.from_lengths((len(tokens) - 1,)))
        logprobs, _ = token_logprobs(hidden, fresh.masters.lm_head_weight, tokens[1:])
    assert reports[0][1] == pytest.approx(-float(logprobs[len(prompt) - 1 :].mean()), rel=1e-5)


def test_an_environment_without_demonstrations_is_named_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"environment sort-digits has no demonstrations: set trainer.warm_start"):
        start(tiny_policy(), env=Watched(lambda task, draw: None))
