"""The escape corpus in every backend: E3, E4, E5; one test for each attack."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from farflung.sandbox.code.attacks.attack import Attack
from farflung.sandbox.code.attacks.corpus import CORPUS
from farflung.sandbox.code.doctor import Trial, bait, try_attack
from farflung.sandbox.code.pool import CodePool


@pytest.fixture(scope="module")
def trials(pool: CodePool) -> Iterator[dict[str, "Future[Trial]"]]:
    """All at once, since several have to wait for a time limit."""
    with bait() as lure, ThreadPoolExecutor(4) as workers:
        yield {attack.name: workers.submit(try_attack, pool, attack, lure) for attack in CORPUS}


@pytest.mark.parametrize("attack", CORPUS, ids=lambda attack: f"{attack.threat}: {attack.name}")
def test_the_walls_hold_against(attack: Attack, trials: dict[str, "Future[Trial]"]) -> None:
    trial = trials[attack.name].result()
    if not trial.expected_here and not trial.held:
        pytest.skip("this machine cannot stop it, as `farflung sandbox doctor` says")
    assert trial.held, trial.detail


def test_every_attack_has_a_name_of_its_own() -> None:
    assert len({attack.name for attack in CORPUS}) == len(CORPUS) >= 40
    assert {attack.threat for attack in CORPUS} == {"E3", "E4", "E5"}
