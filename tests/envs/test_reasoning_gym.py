import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from farflung.envs.reasoning_gym import MAX_ANSWER_CHARS, ReasoningGym, ReasoningGymConfig, split_of
from farflung.envs.reasoning_gym_sets import REFUSED
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

SMALL: dict[str, EnvArg] = {"num_tasks": 40, "num_heldout_tasks": 10}


@dataclass
class FakeConfig:
    seed: int = 0
    size: int = 500
    num_questions: int = 10**6


def fake_dataset(score: Callable[[str, dict[str, Any]], Any], answer: Any = "right") -> type[ProceduralDataset]:
    """A data set whose scorer is `score`."""

    class FakeDataset(ProceduralDataset):
        def __init__(self, config: FakeConfig) -> None:
            super().__init__(config, config.seed, config.size)

        def __getitem__(self, index: int) -> dict[str, Any]:
            number = (self.seed + index) % self.config.num_questions
            return {"question": f"question {number}", "answer": answer, "metadata": {"number": number}}

        def score_answer(self, answer: str | None, entry: dict[str, Any]) -> Any:
            assert answer is not None
            return score(answer, entry)

    return FakeDataset


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ReasoningGym]:
    def install(score: Callable[[str, dict[str, Any]], Any], answer: Any = "right", **args: EnvArg) -> ReasoningGym:
        monkeypatch.setitem(DATASETS, "fake", (fake_dataset(score, answer), FakeConfig))
        return ReasoningGym("fake", 0, SMALL | args)

    return install


Install = Callable[..., ReasoningGym]


def exact(answer: str, entry: dict[str, Any]) -> float:
    return float(answer == entry["answer"])


def raises_unless_right(error: type[BaseException]) -> Callable[[str, dict[str, Any]], float]:
    def score(answer: str, entry: dict[str, Any]) -> float:
        if answer != entry["answer"]:
            raise error
        return 1.0

    return score


def always_raises(error: type[BaseException]) -> Callable[[str, dict[str, Any]], float]:
    def score(answer: str, entry: dict[str, Any]) -> float:
        raise error

    return score


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError])
def test_an_answer_that_a_sound_scorer_cannot_read_scores_0(fake: Install, error: type[BaseException]) -> None:
    env = fake(raises_unless_right(error))
    task = env.task("train", 0)
    assert env.grade(task, "<answer>right</answer>").reward == 1.0
    assert env.grade(task, "<answer>garbage</answer>").reward == 0.0


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, OSError, NotImplementedError])
def test_a_scorer_that_fails_on_its_own_reference_cannot_grade(fake: Install, error: type[BaseException]) -> None:
    env = fake(always_raises(error))
    grade = env.grade(env.task("train", 0), "<answer>right</answer>")
    assert (grade.reward, grade.correct) == (None, None)


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_trouble_of_this_machine_is_not_held_against_the_answer(fake: Install, error: type[BaseException]) -> None:
    env = fake(raises_unless_right(error))
    assert env.grade(env.task("train", 0), "<answer>garbage</answer>").reward is None


@pytest.mark.parametrize(
    ("raw", "reward", "correct"),
    [(1.0000000000000002, 1.0, 1.0), (0.25, 0.25, 0.0), (-3.0, 0.0, 0.0), (True, 1.0, 1.0), (7, 1.0, 1.0)],
)
def test_scores_are_bounded_and_only_full_ones_are_correct(
    fake: Install, raw: float, reward: float, correct: float
) -> None:
    env = fake(lambda answer, entry: raw, partial=True)
    grade = env.grade(env.task("train", 0), "<answer>x</answer>")
    assert (grade.reward, grade.correct) == (reward, correct)
    strict = fake(lambda answer, entry: raw)
    assert strict.grade(strict.task("train", 0), "<answer>x</answer>").reward == correct


def test_a_score_that_is_no_number_is_an_unreadable_answer(fake: Install) -> None:
    env = fake(lambda answer, entry: 1.0 if answer == "right" else float("nan"), partial=True)
    assert env.grade(env.task("train", 0), "<answer>nan</answer>").reward == 0.0


def test_a_scorer_never_sees_an_overlong_blank_or_unmarked_answer(fake: Install) -> None:
    seen: list[str] = []
    env = fake(lambda answer, entry: seen.append(answer) or 1.0)
    task = env.task("train", 0)
    for completion in (
        "right",
        "<answer> </answer>",
        "<answer>right",
        f"<answer>{'9' * (MAX_ANSWER_CHARS + 1)}</answer>",
    ):
        assert env.grade(task, completion).reward == 0.0
    assert env.grade(task, "<think><answer>right</answer>").reward == 0.0
    assert not seen
    assert env.grade(task, f"<answer>{'9' * MAX_ANSWER_CHARS}</answer>").reward == 1.0


@pytest.mark.parametrize(
    ("answer_format", "completion", "reward"),
    [
        ("tags", "so <answer>right</answer>", 1.0),
        ("tags", r"\boxed{right}", 0.0),
        ("boxed", r"so \boxed{right}", 1.0),
        ("boxed", "right", 0.0),
        ("plain", " right\n", 1.0),
        ("plain", "<think>x</think>right", 1.0),
        ("plain", "wrong or right", 0.0),
    ],
)
def test_the_answer_is_marked_as_the_prompt_says(
    fake: Install, answer_format: str, completion: str, reward: float
) -> None:
    env = fake(exact, answer_format=answer_format)
    task = env.task("train", 0)
    assert task.messages[0].content.startswith("question ")
    assert {"tags": "<answer>", "boxed": r"\boxed{", "plain": "nothing else"}[answer_format] in task.messages[0].content
    assert env.grade(task, completion).reward == reward


def test_a_data_set_without_references_is_graded_but_not_demonstrated(fake: Install) -> None:
    env = fake(lambda answer, entry: answer == "any", answer=None)
    task = env.task("train", 0)
    assert env.demonstration(task, 0) is None
    assert env.grade(task, "<answer>any</answer>").reward == 1.0
    assert env.grade(task, "<answer>None</answer>").reward == 0.0
    assert env.grade(task, "").reward == 0.0


def test_few_questions_are_still_split_by_their_text(fake: Install) -> None:
    env = fake(exact, num_questions=12)
    other = ReasoningGym("fake", 99, SMALL | {"num_questions": 12})
    train = {one.task("train", index).messages for one in (env, other) for index in range(40)}
    heldout = {one.task("heldout", index).messages for one in (env, other) for index in range(10)}
    assert not train & heldout
    assert len(train | heldout) == 12


def test_a_data_set_with_one_question_is_refused(fake: Install) -> None:
    with pytest.raises(UserError, match="too few questions"):
        fake(exact, num_questions=1)


def test_blank_references_are_never_asked(fake: Install) -> None:
    with pytest.raises(UserError, match="none of 256 candidates"):
        fake(exact, answer=" ")


@pytest.mark.parametrize("answer", ["café", "1\t2"])
def test_what_a_character_model_cannot_spell_is_never_asked(fake: Install, answer: str) -> None:
    assert fake(exact, answer=answer).alphabet() is None
    with pytest.raises(UserError, match="none of 256 candidates"):
        fake(exact, answer=answer, characters="ascii")


@pytest.mark.parametrize("answer_format", ["tags", "boxed", "plain"])
def test_the_alphabet_of_ascii_tasks_spells_prompts_and_demonstrations(fake: Install, answer_format: str) -> None:
    env = fake(exact, answer="1\n~2", characters="ascii", answer_format=answer_format)
    task = env.task("train", 0)
    assert {*task.messages[0].content, *(env.demonstration(task, 0) or "")} <= set(env.alphabet() or "")


def test_a_quarter_of_the_questions_is_held_out() -> None:
    num_heldout = sum(split_of(f"question {number}") == "heldout" for number in range(4000))
    assert 863 < num_heldout < 1137  # five standard deviations


@pytest.mark.parametrize("dataset", REFUSED)
def test_unsafe_data_sets_are_refused_with_the_reason(dataset: str) -> None:
    with pytest.raises(UserError, match=f"reasoning-gym:{dataset} is refused: (it|a short)"):
        ReasoningGym(dataset, 0, {})


def test_every_refused_name_exists_and_every_scorer_that_evaluates_text_is_refused() -> None:
    assert set(REFUSED) <= set(DATASETS)
    evaluating = {
        name
        for name, (dataset, _) in DATASETS.items()
        if any(call in inspect.getsource(dataset.score_answer) for call in ("eval(answer", "parse_expr(", "exec("))
    }
    assert {"countdown", "n_queens", "binary_matrix"} <= evaluating
    assert evaluating <= set(REFUSED)


def test_no_data_set_has_an_argument_of_the_adapters_name() -> None:
    own = set(ReasoningGymConfig.model_fields)
    assert not {
        name: own & {f.name for f in fields(c)}
        for name, (_, c) in DATASETS.items()
        if own & {f.name for f in fields(c)}
    }


@pytest.mark.parametrize(
    ("dataset", "args", "message"),
    [
        ("chain-sum", {}, 'no data set "chain-sum"; did you mean chain_sum'),
        ("nothing_like_it", {}, 'no data set "nothing_like_it"; it has ab, acre'),
        ("chain_sum", {"min_term": 3}, "no argument min_term; did you mean min_terms"),
        ("chain_sum", {"min_terms": -3}, "refuses min_terms = -3.*must be positive"),
        ("chain_sum", {"min_terms": "x"}, "refuses min_terms = 'x'"),
        ("chain_sum", {"seed": 3}, "no argument seed: the environment's own seed"),
        ("chain_sum", {"size": 3}, "no argument size: num_tasks"),
        ("chain_sum", {"num_tasks": 0}, "num_tasks is 0 .*at least 1"),
        ("chain_sum", {"answer_format": "xml"}, 'answer_format is "xml" .*one of'),
    ],
)
def test_wrong_names_and_arguments_are_answered_with_the_fix(
    dataset: str, args: dict[str, EnvArg], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ReasoningGym(dataset, 0, args)


def test_arguments_reach_the_data_set() -> None:
    env = ReasoningGym("chain_sum", 0, {**SMALL, "min_terms": 9, "max_terms": 9, "min_digits": 1, "max_digits": 1})
    question = env.task("train", 0).messages[0].content.splitlines()[0]
    assert sum(character in "+-" for character in question) == 8


def test_without_the_library_the_answer_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install 'farflung\[reasoning-gym\]'"):
        ReasoningGym("chain_sum", 0, {})
