"""Every environment that is shipped passes `farflung env test`."""

import pytest

from farflung.envs.base import graders_of
from farflung.envs.checks.fingerprint import HASH_SEEDS, Fingerprint, Subject, fingerprints
from farflung.envs.checks.report import Outcome
from farflung.envs.checks.run import Options, check_environment
from farflung.envs.graders.registry import require_ready
from farflung.envs.registry import BUILT_IN, load_environment
from farflung.errors import UserError

SMALL = {"num_tasks": 60, "num_heldout_tasks": 20}
SUBJECTS = [
    *(Subject(name=name) for name in BUILT_IN if name != "dataset"),  # which needs a folder: test_dataset.py
    Subject(name="mixture", args={"members": "sort-digits, mod-sum"}),
    Subject(name="take-away", args={"opponent": "perfect"}),
    *(Subject(name=f"reasoning-gym:{name}", args=SMALL) for name in ("chain_sum", "spell_backward", "knights_knaves")),
]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Fingerprint, Fingerprint]]:
    """Two processes for all of them, since starting one costs more than what it does."""
    one, other = (fingerprints(SUBJECTS, hash_seed, 100.0) for hash_seed in HASH_SEEDS)
    return list(zip(one, other, strict=True))


@pytest.mark.parametrize("number", range(len(SUBJECTS)), ids=[subject.name for subject in SUBJECTS])
def test_it_passes_every_check(number: int, pairs: list[tuple[Fingerprint, Fingerprint]]) -> None:
    subject = SUBJECTS[number]
    environment = load_environment(subject.name, subject.seed, subject.args)
    try:
        require_ready(graders_of(environment))
    except UserError as error:
        pytest.skip(str(error))
    checks = list(check_environment(environment, pairs[number], Options(num_tasks=6)))
    assert [check for check in checks if check.outcome is Outcome.FAILED] == []
    assert len([check for check in checks if check.outcome is Outcome.PASSED]) >= 5
