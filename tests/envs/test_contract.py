"""What every environment promises, whatever its task."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.base import Environment, Split
from farflung.envs.registry import load_environment
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

SPLITS: tuple[Split, Split] = ("train", "heldout")

BUILT_IN: list[tuple[str, dict[str, EnvArg]]] = [
    ("sort-digits", {}),
    ("sort-digits", {"num_digits": 1}),
    ("mod-sum", {"corr": 1.0}),
    ("mod-sum", {"corr": 1.0, "base": 10, "num_digits": 11}),
    ("mod-sum", {"thinking_budget": False, "num_digits": 3}),
    ("long-addition", {}),
    ("long-addition", {"num_digits": 7}),
    ("long-addition", {"num_digits": 1}),
    ("arithmetic", {}),
    ("arithmetic", {"ops": "*+-", "max_value": 1000}),
    ("arithmetic", {"ops": "*", "max_value": 1}),
    ("countdown", {}),
    ("countdown", {"num_numbers": 2, "max_number": 5}),
    ("latin-square", {}),
    ("latin-square", {"num_holes": 2}),
    ("grid-walk", {}),
    ("grid-walk", {"size": 2, "num_walls": 0}),
    ("find-formula", {}),
    ("trading", {}),
    ("trading", {"num_days": 2}),
    ("reverse-text", {}),
    ("reverse-text", {"num_letters": 2, "partial": True}),
    ("instructions", {}),
    ("instructions", {"forms": "json"}),
    ("budgeted:sort-digits", {"num_digits": 3, "budget.targets": "8..12", "budget.after": "|", "budget.filler": "."}),
    ("budgeted:trading", {"budget.targets": "16,32"}),
    ("mixture", {"members": "arithmetic, sort-digits, b=sort-digits", "sort-digits.weight": 3, "b.num_digits": 2}),
]
SMALL = {"num_tasks": 60, "num_heldout_tasks": 20}
REASONING_GYM: list[tuple[str, dict[str, EnvArg]]] = [
    (f"reasoning-gym:{dataset}", {**SMALL, **args})
    for dataset, args in (
        ("ab", {}),
        ("basic_arithmetic", {}),
        ("caesar_cipher", {"answer_format": "boxed"}),
        ("chain_sum", {"answer_format": "plain"}),
        ("gcd", {"partial": True}),
        ("gsm_symbolic", {}),
        ("knights_knaves", {}),
        ("letter_counting", {}),
        ("mini_sudoku", {}),
        ("prime_factorization", {}),
        ("spell_backward", {}),
        ("word_sorting", {}),
    )
]
ALL = BUILT_IN + REASONING_GYM

_loaded: dict[str, Environment] = {}


def loaded(name: str, args: dict[str, EnvArg]) -> Environment:
    key = f"{name} {args}"
    if key not in _loaded:
        _loaded[key] = load_environment(name, 7, args)
    return _loaded[key]


def each(env: Environment, num_indices: int = 20) -> Iterator[Task]:
    """Tasks of both splits, from the beginning and the end, with every target length in turn."""
    targets = (0, *env.target_lengths)
    for split, size in (("train", env.num_tasks), ("heldout", env.num_heldout_tasks)):
        chosen = {*range(min(size, num_indices)), *range(max(0, size - num_indices), size)}
        for count, index in enumerate(sorted(chosen)):
            yield env.task("train" if split == "train" else "heldout", index, targets[count % len(targets)])


def digest(env: Environment) -> str:
    hasher = hashlib.sha256()
    for task in each(env):
        hasher.update(task.to_bytes())
        hasher.update((env.demonstration(task, 3) or "").encode())
    return hasher.hexdigest()


@pytest.mark.parametrize(("name", "args"), ALL)
def test_every_demonstration_scores_1(name: str, args: dict[str, EnvArg]) -> None:  # case 34
    env = loaded(name, args)
    for task in each(env):
        gold = env.demonstration(task, 0)
        assert gold is not None
        grade = env.grade(task, gold)
        assert (grade.reward, grade.correct) == (1.0, 1.0), task


@pytest.mark.parametrize(("name", "args"), ALL)
@pytest.mark.parametrize("completion", ["", " ", "\n"])
def test_an_empty_completion_is_never_correct_and_never_paid(
    name: str, args: dict[str, EnvArg], completion: str
) -> None:
    env = loaded(name, args)
    for task in each(env):
        grade = env.grade(task, completion)
        assert grade.correct == 0.0
        assert grade.reward is not None
        assert grade.reward < 0 if task.target_length and name == "mod-sum" else grade.reward == 0


@pytest.mark.parametrize(("name", "args"), ALL)
def test_the_splits_share_no_prompt(name: str, args: dict[str, EnvArg]) -> None:
    env = loaded(name, args)
    prompts = [
        {env.task(split, index).messages for index in range(min(400, size))}
        for split, size in zip(SPLITS, (env.num_tasks, env.num_heldout_tasks), strict=True)
    ]
    assert not prompts[0] & prompts[1]


@pytest.mark.parametrize(("name", "args"), ALL)
def test_a_task_is_one_user_message_of_its_environment(name: str, args: dict[str, EnvArg]) -> None:
    env = loaded(name, args)
    for task in each(env, num_indices=5):
        assert [message.role for message in task.messages] == ["user"]
        assert task.env == env.name == name


@pytest.mark.parametrize(("name", "args"), ALL)
@pytest.mark.parametrize("split", SPLITS)
def test_an_index_outside_the_split_is_refused(name: str, args: dict[str, EnvArg], split: Split) -> None:
    env = loaded(name, args)
    size = env.num_tasks if split == "train" else env.num_heldout_tasks
    env.task(split, size - 1)
    for index in (-1, size, size + 10**9):
        with pytest.raises(IndexError, match=f"task {index} of the {split} split: it has {size}"):
            env.task(split, index)


@pytest.mark.parametrize(("name", "args"), ALL)
def test_a_target_length_that_is_not_offered_is_refused(name: str, args: dict[str, EnvArg]) -> None:
    with pytest.raises(ValueError, match="target length 99"):
        loaded(name, args).task("train", 0, 99)


@pytest.mark.parametrize(("name", "args"), ALL)
def test_tasks_have_their_own_ids_and_know_their_target(name: str, args: dict[str, EnvArg]) -> None:
    env = loaded(name, args)
    ids = [task.task_id for task in each(env)]
    assert len(set(ids)) == len(ids)
    for target in env.target_lengths:
        assert env.task("train", 0, target).target_length == target


@pytest.mark.parametrize(("name", "args"), BUILT_IN)
def test_the_alphabet_covers_prompts_and_completions_without_repeats(name: str, args: dict[str, EnvArg]) -> None:
    env = loaded(name, args)
    alphabet = env.alphabet()
    assert alphabet is not None
    assert len(set(alphabet)) == len(alphabet)
    used: set[str] = set()
    for task in each(env, num_indices=200):
        used |= {*task.messages[0].content, *(env.demonstration(task, 0) or "")}
    assert used <= set(alphabet)


@pytest.mark.parametrize(("name", "args"), BUILT_IN)
def test_another_seed_gives_other_tasks(name: str, args: dict[str, EnvArg]) -> None:
    prompts = [
        [task.messages[0].content for task in each(load_environment(name, seed, args), num_indices=100)]
        for seed in (7, 8)
    ]
    assert prompts[0] != prompts[1]


def test_another_process_and_instance_give_the_same_tasks_without_torch() -> None:
    script = f"""
import runpy, sys
test = runpy.run_path({__file__!r})
before = set(sys.modules)
for name, args in test["ALL"]:
    print(test["digest"](test["load_environment"](name, 7, args)))
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5"}
    )
    assert done.stdout.split() == [digest(load_environment(name, 7, args)) for name, args in ALL]


def test_importing_the_registry_imports_neither_torch_nor_the_optional_library() -> None:
    script = (
        "import sys, farflung.envs.registry; sys.exit(bool({'torch', 'reasoning_gym', 'sympy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


_hostile = st.one_of(
    st.text(),
    st.text("0123456789=;:[]>-+ ", max_size=60),
    st.lists(
        st.sampled_from(["<answer>", "</answer>", "</think>", "\\boxed{", "}", "[", "{", "1", "nan", ",", "\u00d7"])
    ).map("".join),
)


@pytest.mark.parametrize(("name", "args"), ALL)
@given(text=_hostile, index=st.integers(0, 4))
def test_no_text_makes_grading_raise_or_pay_outside_its_range(
    name: str, args: dict[str, EnvArg], text: str, index: int
) -> None:
    env = loaded(name, args)
    target = env.target_lengths[index % len(env.target_lengths)] if env.target_lengths else 0
    task = env.task("train" if index % 2 else "heldout", 0, target)
    for completion in (
        text,
        f"<answer>{text}</answer>",
        f"\\boxed{{{text}}}",
        (env.demonstration(task, 0) or "") + text,
    ):
        grade = env.grade(task, completion)
        assert grade.correct in (0.0, 1.0)
        assert grade.reward is not None
        assert grade.reward <= 1.0


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("sort-digits", ["148299>", "052440>", "500843>"]),
        ("mod-sum", ["120321=", "204441=", "322234="]),
        ("long-addition", ["1690+4926=", "0729+8158=", "6991+7192="]),
        ("arithmetic", ["29-72=", "47-95=", "5+30="]),
        ("reverse-text", ["fgnrci>", "zbxhsz>", "repurs>"]),
        (
            "instructions",
            [
                "Describe lakes. Reply with exactly four words.",
                "What are your thoughts on cameras? Reply with a numbered list of exactly three short items.",
                'Why do people care about doors? Reply in JSON, as {"answer": "..."}.',
            ],
        ),
    ],
)
def test_the_first_tasks_of_seed_0_never_change(name: str, prompts: list[str]) -> None:
    env = load_environment(name, 0, {})
    assert [env.task("train", index).messages[0].content for index in range(3)] == prompts
