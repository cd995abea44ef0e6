"""The surface of the configuration, and the rules between sections."""

from pathlib import Path

import pytest

from farflung.cli.config import RunConfig
from farflung.cli.pool_rules import build_pool
from farflung.cli.shipped import resolve_config, shipped_names, shipped_path
from farflung.config.fields import keys
from farflung.config.load import load
from farflung.envs.reasoning_gym import ASCII
from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder

SETTINGS = Path(__file__).with_name("settings.txt")
"""One dotted key a line. Change it together with the code: people have these keys in their files."""

TINY = [
    "arithmetic",
    "budget",
    "countdown",
    "demo",
    "find-formula",
    "grid-walk",
    "guess-letter",
    "latin-square",
    "long-addition",
    "mixture",
    "mod-sum",
    "reasoning-gym",
    "reverse-text",
    "take-away",
    "trading",
]
OF_A_FOLDER = ["smollm2", "smollm2-needle"]
"""They start from a model that has to be imported first."""


def complaint(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load(RunConfig, None, overrides)
    return str(caught.value)


def test_the_settings_are_those_that_people_rely_on() -> None:
    assert [key.name for key in keys(RunConfig) if key.section is None] == SETTINGS.read_text().splitlines()


def test_every_setting_says_what_it_is() -> None:
    assert [key.name for key in keys(RunConfig) if key.section is None and not key.description] == []


def test_defaults_keep_their_own_rules() -> None:
    assert load(RunConfig, None).config == RunConfig()


def test_shipped_configurations_are_found_by_name() -> None:
    assert shipped_names() == sorted(TINY + OF_A_FOLDER)
    assert resolve_config("demo") == shipped_path("demo")


@pytest.mark.parametrize("name", TINY)
def test_shipped_configurations_are_valid_and_their_tasks_fit_the_limits(name: str) -> None:
    config = load(RunConfig, shipped_path(name)).config
    assert config.run.name == name
    pool = build_pool(config)
    assert pool.environment.num_tasks > 0
    assert pool.group_size == config.pool.group_size
    assert pool.environment.seed == config.run.seed


@pytest.mark.parametrize("name", OF_A_FOLDER)
def test_those_that_start_from_a_folder_say_which_and_are_valid_with_one(name: str, tmp_path: Path) -> None:
    config = load(RunConfig, shipped_path(name)).config
    assert (config.run.name, config.trainer.model.path) == (name, "models/smollm2-135m-instruct")
    with pytest.raises(UserError, match=r"trainer\.model\.path"):
        build_pool(config)
    tokenizer = character_tokenizer(ASCII)
    model = tiny_config(tokenizer)
    save_folder(tmp_path / "model", model, random_state(model, seed=0), tokenizer.files)
    pool = build_pool(load(RunConfig, shipped_path(name), ["--trainer.model.path", str(tmp_path / "model")]).config)
    assert pool.environment.num_tasks > 0


def test_arguments_of_members_are_tables_or_dotted_names() -> None:
    config = load(RunConfig, shipped_path("mixture")).config
    assert config.environment.args["sort-digits.weight"] == 2
    strata = build_pool(config).environment.strata
    assert [(part.name, part.weight) for part in strata] == [("sort-digits", 2), ("mod-sum", 1), ("reverse-text", 1)]
    assert RunConfig.model_validate({"environment": {"args": {"a": {"weight": 2}}}}).environment.args == {"a.weight": 2}


def test_a_data_set_that_no_tiny_model_can_spell_asks_for_a_model() -> None:
    config = load(RunConfig, shipped_path("reasoning-gym"), ["--environment.args={}"]).config
    with pytest.raises(UserError, match=r'^trainer\.model\.path is "tiny".*open vocabulary'):
        build_pool(config)


def test_a_file_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").write_text("")
    assert resolve_config("demo") == Path("demo")
    assert resolve_config("other.toml") == Path("other.toml")
    Path("mod-sum").mkdir()
    assert resolve_config("mod-sum") == shipped_path("mod-sum")
    with pytest.raises(UserError, match="did you mean mod-sum"):
        resolve_config("modsum")


def test_tasks_follow_the_seed_of_the_run_unless_they_have_their_own() -> None:
    assert load(RunConfig, None, ["--run.seed=3"]).config.environment_seed == 3
    assert load(RunConfig, None, ["--run.seed=3", "--environment.seed=5"]).config.environment_seed == 5
    assert load(RunConfig, None, ["--run.seed=3", "--environment.seed=none"]).config.environment_seed == 3


def test_a_group_of_one_is_refused() -> None:
    assert complaint("--pool.group_size=1") == (
        "pool.group_size is 1 (command line); it must be at least 2, for example 8 (the default)"
    )


def test_temperature_0_is_refused_for_training() -> None:
    """Case T5; in an evaluation it is greedy."""
    assert load(RunConfig, None, ["--trainer.evaluation.temperature=0"]).config.trainer.evaluation.temperature == 0
    assert complaint("--pool.temperature=0") == (
        "pool.temperature is 0 (command line); it must be greater than 0, for example 1.0 (the default)"
    )


@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_there_is_no_way_to_train_on_a_cut_distribution(name: str) -> None:
    """Case T4: the ratio of a policy with its tail cut off is not the one that the objective takes."""
    assert complaint(f"--pool.{name}=0.5").startswith(f"unknown setting --pool.{name} on the command line")


def test_delta_must_exceed_the_upper_clip() -> None:
    assert complaint("--trainer.objective.delta=1.2").startswith(
        "[trainer.objective] delta is 1.2 with clip_high 0.28: delta must exceed 1 + clip_high = 1.28"
    )


def test_the_longest_sequence_must_fit_a_micro_batch() -> None:
    assert complaint("--trainer.micro_batch_tokens=100").startswith(
        "trainer.micro_batch_tokens is 100 but the longest sequence has "
        "pool.max_prompt_tokens + pool.max_completion_tokens = 512 tokens"
    )


@pytest.mark.parametrize("role", ["trainer", "worker", "validator"])
def test_signs_of_life_must_come_twice_in_the_time_of_silence(role: str) -> None:
    assert complaint(f"--{role}.heartbeat_s=11").startswith(
        f"{role}.heartbeat_s is 11 but coordinator.silent_after_s is 20"
    )


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("[{}, {}, {}]", "supervisor.worker_overrides has 3 entries but supervisor.num_workers is 2"),
        ("[{}, {sped = 0.5}]", "supervisor.worker_overrides, entry 2: unknown setting sped; known: node, "),
        ("[{speed = 2.0}]", "supervisor.worker_overrides, entry 1: speed is 2.0; input should be less than"),
        ("[{node = 'a'}]", "supervisor.worker_overrides, entry 1: node cannot be set here"),
    ],
)
def test_worker_overrides_are_settings_of_workers_that_exist(overrides: str, sentence: str) -> None:
    assert complaint(f"--supervisor.worker_overrides={overrides}").startswith(sentence)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a" * 65])
def test_a_run_cannot_be_called_what_is_no_folder_name(name: str) -> None:
    assert complaint(f"--run.name={name}").startswith("run.name is ")


def test_a_batch_with_signal_needs_room_for_what_it_may_take() -> None:
    four = ("--trainer.batch_counts=signal", "--trainer.max_sampled_per_batch=4")
    message = complaint(*four, "--pool.max_outstanding_groups=96")
    assert "trainer.max_sampled_per_batch * pool.groups_per_batch = 128 groups" in message
    assert "only pool.max_outstanding_groups = 96" in message
    load(RunConfig, None, [*four, "--pool.max_outstanding_groups=128"])
    load(RunConfig, None, [*four])


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("local", ["false", "true"])
def test_batches_with_signal_need_no_other_setting_in_shipped_configurations(name: str, local: str) -> None:
    load(RunConfig, shipped_path(name), ["--trainer.batch_counts=signal", f"--run.local={local}"])


def test_a_batch_with_signal_is_no_fixed_number_of_slots() -> None:
    message = complaint("--trainer.batch_counts=signal", "--pool.deterministic=true")
    assert 'trainer.batch_counts is "signal" with pool.deterministic' in message


def test_a_local_run_proves_nothing_to_anybody() -> None:
    message = complaint("--run.local=true", "--pool.trust=proven")
    assert 'pool.trust is "proven" in a local run, which has no workers' in message
    assert "without --local" in message


def test_a_local_run_samples_only_so_far_ahead_that_a_batch_with_signal_fits() -> None:
    message = complaint(
        "--trainer.batch_counts=signal",
        "--trainer.max_sampled_per_batch=4",
        "--run.local=true",
        "--pool.max_staleness=2",
    )
    assert "trainer.max_sampled_per_batch is 4 with pool.max_staleness 2" in message


def test_as_many_validators_are_started_as_are_drawn_for_a_submission() -> None:
    message = complaint("--pool.validators_per_submission=3", "--supervisor.num_validators=2")
    assert "pool.validators_per_submission is 3 with supervisor.num_validators 2" in message
    for number in (0, 3):
        load(RunConfig, None, ["--pool.validators_per_submission=3", f"--supervisor.num_validators={number}"])
    assert "a local run, which has no validators" in complaint("--run.local=true", "--pool.validators_per_submission=3")
