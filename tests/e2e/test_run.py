"""A whole run from the command line to its artifacts, with two workers of different speed and a validator."""

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import History, audit
from farflung.cli.config import RunConfig
from farflung.config.load import load
from farflung.engine.base import SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import evaluate
from farflung.model.folder import load_folder
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from processes import run_command
from real_run import RealRun, StartRun

pytestmark = pytest.mark.timeout(600)

MIN_RISE = 0.1
"""Held-out accuracy rises by 0.22 to 0.38 in 40 versions (seeds 0 to 4), one standard error being 0.02."""
ROLES = ["coordinator", "trainer", "worker-1", "worker-2", "validator-1"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "run-folder.md"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    """A run that nobody disturbed."""
    yield from _finished(RealRun(tmp_path_factory.mktemp("finished"), "--run.seed=2"))


@pytest.fixture(scope="module")
def synchronous_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    """A short run without staleness, whose processes tell in their logs what they import."""
    settings = ("--pool.max_staleness=0", "--pool.max_outstanding_groups=64", "--trainer.max_versions=8")
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}
    yield from _finished(RealRun(tmp_path_factory.mktemp("synchronous"), *settings, environment=environment))


def _finished(run: RealRun) -> Iterator[RealRun]:
    try:
        run.start()
        run.finish()
        yield run
    finally:
        run.clean_up()


def rise(run: RealRun) -> float:
    return float(run.summary["final_accuracy"] - run.summary["initial_accuracy"])


def documented_keys() -> list[str]:
    """Keys of summary.json in the order of the table that people read."""
    section = DOCUMENTATION.read_text().partition("## summary.json")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)]


def nodes_of(history: History) -> set[str]:
    return {submission.node for submission in history.submitted}


def test_the_model_gets_better_on_tasks_that_it_is_not_trained_on(finished_run: RealRun) -> None:
    assert 0.2 < finished_run.summary["initial_accuracy"] < 0.6
    assert rise(finished_run) > MIN_RISE


def test_what_a_run_leaves_behind_agrees_with_its_event_log(finished_run: RealRun) -> None:
    history = audit(finished_run.folder)
    assert len(history.batches) == 40
    assert nodes_of(history) == {"worker-1", "worker-2"}, "a worker contributed nothing"


def test_the_summary_has_exactly_the_documented_keys(finished_run: RealRun) -> None:
    assert list(finished_run.summary) == documented_keys()
    assert finished_run.summary["seed"] == 2


def test_the_model_folder_holds_the_policy_of_the_last_evaluation(finished_run: RealRun) -> None:
    config = load(RunConfig, finished_run.folder.config).config
    model = load_folder(finished_run.folder.model)
    tokenizer = Tokenizer.from_files(model.tokenizer_files)
    engine = TorchEngine(model.config, max_batch_rows=256)
    engine.load_weights(model.state, 0)
    evaluation = evaluate(
        engine,
        load_environment(config.environment.name, config.environment_seed, config.environment.args),
        tokenizer,
        SamplingParams(
            temperature=config.trainer.evaluation.temperature,
            max_completion_tokens=config.pool.max_completion_tokens,
            eos_token_ids=end_of_sequence(tokenizer, model.config),
            reserved_token_ids=never_drawn(tokenizer, model.config),
        ),
        num_tasks=config.trainer.evaluation.num_tasks,
    )
    assert evaluation.accuracy == finished_run.metrics("eval")[-1]["accuracy"] == finished_run.summary["final_accuracy"]


def test_people_find_a_picture_and_a_table_of_completions(finished_run: RealRun) -> None:
    assert finished_run.folder.curves.read_bytes().startswith(b"\x89PNG")
    page = finished_run.folder.samples_page.read_text()
    samples = [json.loads(line) for line in finished_run.folder.samples.read_text().splitlines()]
    assert {row["version"] for row in samples} == {0, 10, 20, 30, 40}
    assert samples[-1]["completion"] in page


def test_another_configuration_in_the_same_folder_is_refused_with_the_difference(finished_run: RealRun) -> None:
    before = finished_run.folder.summary.read_bytes()
    words = ["run", str(finished_run.config_path), *finished_run.settings, "--trainer.optimizer.lr=0.5"]
    result = run_command(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"farflung: {finished_run.folder.root} holds a run with other settings:\n")
    assert "  - trainer.optimizer.lr: 0.0005 there, 0.5 now\n" in result.stderr
    assert finished_run.folder.summary.read_bytes() == before


def test_without_staleness_every_rollout_is_of_the_version_that_is_trained(synchronous_run: RealRun) -> None:
    history = audit(synchronous_run.folder)
    assert synchronous_run.summary["staleness_max"] == 0
    assert len(history.batches) == 8
    assert {version - 1 - item.policy_version for version, item in history.items} == {0}


@pytest.mark.parametrize(
    ("process", "unwanted"),
    [
        ("coordinator", {"torch", "transformers", "matplotlib", "rich"}),
        ("validator-1", {"torch", "transformers", "matplotlib", "rich"}),
        ("worker-1", {"transformers", "matplotlib", "rich", "sqlalchemy"}),
        ("trainer", {"transformers", "matplotlib", "rich", "sqlalchemy"}),
    ],
)
def test_a_process_loads_in_its_whole_life_only_what_it_needs(
    synchronous_run: RealRun, process: str, unwanted: set[str]
) -> None:
    imported = set(re.findall(r"^import time: .*\| +(\S+)$", synchronous_run.log(process), re.MULTILINE))
    assert {"farflung", "aiohttp"} <= imported
    assert imported & unwanted == set()


def test_a_run_survives_kill_9_of_every_role(new_run: StartRun) -> None:
    """In random order, at random moments; the pool may run as far ahead as its staleness allows."""
    run = new_run("--run.seed=3", "--pool.max_outstanding_groups=320")
    dice = random.Random(0)
    run.start()
    moments = sorted(dice.sample(range(1, 30), len(ROLES)))
    for version, name in zip(moments, dice.sample(ROLES, len(ROLES)), strict=True):
        run.wait_for_version(version)
        time.sleep(dice.uniform(0, 0.3))
        run.kill_role(name)
    run.finish()
    for name in ROLES:
        assert f"{name} was killed by SIGKILL" in run.output
    assert run.tracebacks() == []
    assert run.orphans() == []
    audit(run.folder)
    assert run.summary["versions"] == 40
    assert rise(run) > MIN_RISE
