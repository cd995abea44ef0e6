from dataclasses import replace as replace_in
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from farflung.errors import UserError
from farflung.model.folder import save_folder
from farflung.trainer.checkpoint import Checkpoint, Progress
from farflung.trainer.model_source import describe
from farflung.trainer.setup import Setup, set_up
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from tiny_pool import description, environment, pool_spec, tiny_policy, trainer_config

POOL = pool_spec()


def masters(setup: Setup) -> dict[str, torch.Tensor]:
    return setup.learner.policy.masters_state()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def a_checkpoint(seed: int = 7, **changes: Any) -> Checkpoint:
    policy, digest = tiny_policy(seed), sha256_hex(b"x")
    fresh = set_up(trainer_config(), POOL, 0, None).buffer
    fresh.close(0, "rejected")
    manifest = Manifest(
        pool_digest=POOL.digest(),
        policy_version=9,
        policy_digest=digest,
        optimizer_step=8,
        files=(),
        tensors=(),
        published_at_ms=0,
        expires_at_ms=0,
    )
    values: dict[str, Any] = {
        "pool_digest": POOL.digest(),
        "policy_version": 9,
        "optimizer_step": 8,
        "initial_accuracy": 0.25,
        "best_accuracy": 0.75,
        "tokens_trained": 100,
        "dropped_groups": {"no_signal": 3},
        "buffer": dict(fresh.snapshot()),
    }
    return Checkpoint(
        progress=Progress(**(values | changes)),
        publication=Publication(manifest=manifest),
        masters=policy.masters_state(),
        optimizer={},
    )


def test_a_new_run_starts_from_its_seed() -> None:
    first, again, other = (set_up(trainer_config(), POOL, seed, None) for seed in (1, 1, 2))
    assert same(masters(first), masters(again))
    assert not same(masters(first), masters(other))
    assert first.publication is None
    assert (first.learner.optimizer_step, first.buffer.cursor, first.canary.best_accuracy) == (0, 0, 0.0)


def test_a_continued_run_starts_from_its_checkpoint_whatever_the_seed() -> None:
    checkpoint = a_checkpoint()
    setup = set_up(trainer_config(), POOL, 1, checkpoint)
    assert same(masters(setup), dict(checkpoint.masters))
    assert setup.publication is checkpoint.publication
    learner, canary = setup.learner, setup.canary
    assert (learner.optimizer_step, learner.tokens_trained) == (8, 100)
    assert learner.dropped_groups == {"no_signal": 3}
    assert (canary.initial_accuracy, canary.best_accuracy) == (0.25, 0.75)
    assert setup.buffer.cursor == 1


def test_a_model_folder_is_not_read_when_there_is_a_checkpoint(tmp_path: Path) -> None:
    """Only what the pool's rules are checked against is: configuration and tokenizer, never the weights."""
    folder, model = tmp_path / "model", description()
    save_folder(folder, model.config, tiny_policy(3).published_state(), model.tokenizer.files)
    config = trainer_config(model={"path": str(folder)})
    found = describe(config.model, environment())
    pool = replace(POOL, model_config_digest=found.config_digest, tokenizer_digest=found.tokenizer.digest)
    new = set_up(config, pool, 0, None)
    assert same(new.learner.policy.published_state(), tiny_policy(3).published_state())
    (folder / "model.safetensors").unlink()
    continued = set_up(config, pool, 0, a_checkpoint(pool_digest=pool.digest()))
    assert same(masters(continued), tiny_policy(7).masters_state())


@pytest.mark.parametrize(
    ("pool", "config", "sentence"),
    [
        ({"tokenizer_digest": sha256_hex(b"other")}, {}, "name another model or tokenizer"),
        ({"model_config_digest": sha256_hex(b"other")}, {}, "name another model or tokenizer"),
        ({}, {"micro_batch_tokens": 10}, "micro_batch_tokens is 10 but the pool's longest sequence has 11 tokens"),
        ({"max_prompt_tokens": 2}, {}, "pool.max_prompt_tokens is 2 but task train/0 of sort-digits has a prompt of 3"),
    ],
)
def test_what_does_not_fit_together_is_said_in_a_sentence(
    pool: dict[str, Any], config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        set_up(trainer_config(**config), pool_spec(**pool), 0, None)


def test_a_checkpoint_of_other_rules_is_refused() -> None:
    with pytest.raises(UserError, match="checkpoint of version 9 is of another pool: its rules have changed"):
        set_up(trainer_config(), pool_spec(max_staleness=2), 0, a_checkpoint())


def test_the_buffer_has_a_place_for_everything_that_may_be_outstanding() -> None:
    pool = pool_spec(max_outstanding_groups=9)  # five slots of two groups, rounded up, and a batch of two slots
    assert set_up(trainer_config(), pool, 0, None).buffer.params.max_slots == 7


def test_the_description_names_the_files_of_a_policy() -> None:
    files = description().policy_files
    assert {"config.json", "tokenizer.json"} <= files.keys()
    assert "model.safetensors" not in files


def test_a_tiny_model_needs_an_alphabet() -> None:
    class OpenVocabulary:
        name = "open"

        def alphabet(self) -> None:
            return None

    with pytest.raises(UserError, match=r"environment open has an open vocabulary: set trainer.model.path"):
        describe(trainer_config().model, OpenVocabulary())  # type: ignore[arg-type]


def test_the_architectures_identity_changes_with_its_shape_alone() -> None:
    source = trainer_config().model
    wider = source.model_copy(update={"hidden_size": 32})
    spread = source.model_copy(update={"init_std": 0.01})
    digest = describe(source, environment()).config_digest
    assert describe(wider, environment()).config_digest != digest
    assert describe(spread, environment()).config_digest == digest


def test_the_environment_is_that_of_the_pool() -> None:
    spec = EnvironmentSpec(name="sort-digits", args={"num_digits": 2}, seed=5, num_tasks=90)
    prompts = [
        set_up(trainer_config(), pool_spec(environment=each), 0, None).environment.task("train", 0).messages
        for each in (POOL.environment, spec)
    ]
    assert prompts[0] != prompts[1]


# -- going on ---------------------------------------------------------------------------------------------------------


def of_lineage(pool: PoolSpec = POOL, **config: Any) -> Checkpoint:
    """A checkpoint as a trainer of this configuration leaves it."""
    lineage = set_up(trainer_config(**config), pool, 0, None).lineage
    return a_checkpoint(lineage=lineage, pool_digest=pool.digest())


def test_a_changed_setting_is_refused_with_the_difference() -> None:
    with pytest.raises(UserError, match=r"  - trainer\.optimizer\.lr: 0\.001 -> 0\.5\ncontinue it as it was"):
        set_up(trainer_config(optimizer={"lr": 0.5}), POOL, 0, of_lineage())


@pytest.mark.parametrize(
    "free", [{"max_versions": 99}, {"heartbeat_s": 9.0}, {"checkpoint": {"keep": 7}}, {"num_samples_logged": 1}]
)
def test_what_changes_no_mathematics_may_change(free: dict[str, Any]) -> None:
    assert set_up(trainer_config(**free), POOL, 0, of_lineage()).accepted_changes == ()


def test_a_change_may_be_accepted_and_is_remembered() -> None:
    setup = set_up(trainer_config(optimizer={"lr": 0.5}, accept_changes=True), POOL, 0, of_lineage())
    assert setup.accepted_changes == ("trainer.optimizer.lr: 0.001 -> 0.5",)


def test_other_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_lineage()
    monkeypatch.setattr("farflung.trainer.setup.data_digest", lambda _environment: "f" * 64)
    with pytest.raises(UserError, match=r"  - tasks of the environment: [0-9a-f]{16} -> ffffffffffffffff\n"):
        set_up(trainer_config(), POOL, 0, before)


def test_another_torch_is_refused_in_deterministic_mode_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = pool_spec(deterministic_seed=0)
    before, fixed_before = of_lineage(), of_lineage(fixed)
    monkeypatch.setattr("farflung.trainer.setup.torch.__version__", "0.1")
    assert set_up(trainer_config(), POOL, 0, before).accepted_changes == ()
    with pytest.raises(UserError, match=r"  - torch: .* -> 0\.1"):
        set_up(trainer_config(), fixed, 0, fixed_before)


def test_a_lineage_has_the_releases_that_its_tasks_are_made_by(monkeypatch: pytest.MonkeyPatch) -> None:
    sheep = {"sheep": "count-sheep 1.2"}
    monkeypatch.setattr("farflung.envs.registry.sources_here", lambda _name, _args: sheep)
    pool = pool_spec(environment=replace(POOL.environment, sources=sheep))
    software = set_up(trainer_config(), pool, 0, None).lineage.software
    assert software["sheep"] == "count-sheep 1.2"
    assert {"torch", "farflung"} <= software.keys()


def test_rare_checkpoints_and_a_deterministic_pool_do_not_go_together() -> None:
    with pytest.raises(UserError, match=r"trainer\.checkpoint\.every_versions is 5 with pool\.deterministic"):
        set_up(trainer_config(checkpoint={"every_versions": 5}), pool_spec(deterministic_seed=0), 0, None)


def test_refused_batches_in_a_row_are_counted_on() -> None:
    assert set_up(trainer_config(), POOL, 0, a_checkpoint(rollbacks_in_a_row=3)).rollbacks_in_a_row == 3


LORA: dict[str, Any] = {"lora": {"rank": 2}}


def test_an_adapter_goes_on_beside_the_weights_that_it_was_trained_beside(tmp_path: Path) -> None:
    model = description()
    save_folder(tmp_path / "m", model.config, tiny_policy(3).published_state(), model.tokenizer.files)
    config = trainer_config(model={"path": str(tmp_path / "m")}, **LORA)
    first = set_up(config, POOL, 0, None)
    state = {name: component.snapshot() for name, component in first.components.items()}
    checkpoint = replace_in(
        a_checkpoint(component_state=state, lineage=first.lineage),
        masters={name: tensor + 0.125 for name, tensor in masters(first).items()},
    )
    again = set_up(config, POOL, 5, checkpoint)
    assert same(masters(again), dict(checkpoint.masters))
    save_folder(tmp_path / "m", model.config, tiny_policy(4).published_state(), model.tokenizer.files)
    with pytest.raises(UserError, match="are not those that this run's adapter was trained beside"):
        set_up(config, POOL, 5, checkpoint)


def test_another_rank_is_told_as_a_change_and_knowingly_it_does_not_fit() -> None:
    first = set_up(trainer_config(**LORA), POOL, 0, None)
    state = {name: component.snapshot() for name, component in first.components.items()}
    checkpoint = replace_in(a_checkpoint(component_state=state, lineage=first.lineage), masters=masters(first))
    with pytest.raises(UserError, match=r"trainer.lora.rank: 2 -> 3"):
        set_up(trainer_config(lora={"rank": 3}), POOL, 0, checkpoint)
    with pytest.raises(UserError, match="the adapter does not fit this model"):
        set_up(trainer_config(lora={"rank": 3}, accept_changes=True), POOL, 0, checkpoint)
