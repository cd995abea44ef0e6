"""What the adapter says and does where the library is absent; its parts that need none."""

import asyncio
import sys
import threading

import pytest

from farflung.envs.registry import load_environment
from farflung.envs.verifiers_adapter import library
from farflung.envs.verifiers_adapter.calls import Caller, TookTooLong
from farflung.envs.verifiers_adapter.rows import rows_of
from farflung.errors import UserError


class Data(dict[str, list[object]]):
    """As much of a data set as rows are asked for."""

    def __len__(self) -> int:
        return len(self["prompt"])


class Loaded:
    def __init__(self, train: list[object] | None, heldout: list[object] | None) -> None:
        self._train, self._heldout = train, heldout

    def build_dataset(self) -> Data | None:
        return None if self._train is None else Data(prompt=self._train)

    def build_eval_dataset(self) -> Data | None:
        return None if self._heldout is None else Data(prompt=self._heldout)


def test_a_missing_library_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    library.library.cache_clear()
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(UserError, match=r"verifiers is not installed; pip install 'farflung\[verifiers\]'"):
        load_environment("verifiers:reverse-text", 0, {})


def test_rows_with_a_held_out_prompt_are_not_trained_on() -> None:
    rows = rows_of(Loaded(["a", "b", "a", "c"], ["a", "d"]))
    assert (list(rows.train), list(rows.heldout)) == ([1, 3], [0, 1])


def test_rows_for_evaluation_alone_have_no_training_split() -> None:
    rows = rows_of(Loaded(None, ["a", "b"]))
    assert (len(rows.train), len(rows.heldout)) == (0, 2)


@pytest.mark.parametrize(("num_prompts", "num_heldout"), [(1, 0), (2, 1), (10, 1), (100, 10)])
def test_a_tenth_of_the_prompts_is_held_out_with_all_their_rows(num_prompts: int, num_heldout: int) -> None:
    prompts: list[object] = [f"prompt {number}" for number in range(num_prompts)] * 2
    rows = rows_of(Loaded(prompts, None))
    held = {prompts[number] for number in rows.heldout}
    assert len(held) == num_heldout
    assert not held & {prompts[number] for number in rows.train}
    assert len(rows.train) + len(rows.heldout) == len(prompts)


async def later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return threading.current_thread().name


async def stuck(until: threading.Event) -> None:
    until.wait()


async def late_by_itself() -> None:
    raise TimeoutError("its own")


def test_a_call_has_a_limit_and_the_next_one_is_not_harmed() -> None:
    caller, release = Caller(0.2), threading.Event()
    assert caller.call(later(0)) == "verifiers"
    with pytest.raises(TookTooLong, match=r"not done after 0\.2 s"):
        caller.call(later(30))
    with pytest.raises(TookTooLong):
        caller.call(stuck(release))
    assert caller.call(later(0)) == "verifiers"
    release.set()


def test_a_timeout_of_the_work_is_its_own() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        Caller(5.0).call(late_by_itself())
