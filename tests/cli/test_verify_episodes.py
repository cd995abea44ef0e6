"""`farflung verify --pool`: games of several turns and two agents are played again; forged turns are named."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from farflung.cli import main
from farflung.engine.base import SamplingParams
from farflung.engine.rounds import Seat, play
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.episode import Episodic
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.take_away import TakeAway
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.proofs.commitments import Commitments
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.worker.sampler import rollouts_of
from running_pool import COORDINATOR, TRAINER, coordinator
from tiny_pool import pool_spec

SEED = bytes(range(32))
ARGS = {"max_pile": 12, "max_take": 3}
GAME = TakeAway(0, ARGS)
TASKS = (3, 7)


@dataclass
class Setting:
    folder: Path
    pool: PoolSpec
    rows: list[Rollout]

    def verify(self, rows: list[Rollout], *options: str, pool: PoolSpec | None = None) -> int:
        path = self.folder / "game.parquet"
        path.write_bytes(write_rollouts(rows, (pool or self.pool).digest()))
        arguments = ["verify", str(path), "--model", str(self.folder / "m"), "--seed", SEED.hex(), "--json", *options]
        return main.main(arguments)


@pytest.fixture
async def setting(tmp_path: Path) -> Setting:
    """A run's folder of a proven pool, a policy, and a slot of games that it played."""
    alphabet = GAME.alphabet()
    assert alphabet is not None
    tokenizer = character_tokenizer(alphabet)
    config = tiny_config(tokenizer, hidden_size=32, num_heads=2, intermediate_size=64, num_layers=2)
    save_folder(tmp_path / "m", config, random_state(config, 0, std=0.3), tokenizer.files)
    state = load_folder(tmp_path / "m").state  # rounded, as versions are
    pool = with_fields(
        pool_spec(trust="proven", coordinator=COORDINATOR.address, trainer=TRAINER.address, proofs=DEFAULT_RULES),
        environment=EnvironmentSpec(name=GAME.name, num_tasks=GAME.num_tasks, num_agents=2, args=ARGS),
        group_size=2,
        groups_per_slot=2,
        max_prompt_tokens=16,
        max_completion_tokens=60,
        tokenizer_digest=tokenizer.digest,
    )
    params = SamplingParams(
        max_completion_tokens=60,
        eos_token_ids=end_of_sequence(tokenizer, config),
        reserved_token_ids=never_drawn(tokenizer, config),
    )
    lease = Lease(
        pool_digest=pool.digest(), lease_id="0-0", slot=0, attempt=0, node=COORDINATOR.address, policy_version=0,
        policy_digest="ab" * 32, task_indices=TASKS, target_lengths=(0, 0), draw_seed=SEED.hex(),
        capability_class="any", issued_at_ms=0, expires_at_ms=1,
    )  # fmt: skip
    limits = EpisodeLimits.of_pool(pool, params.eos_token_ids)
    assert isinstance(GAME, Episodic)
    seats = [
        Seat(group=group, number=number, episode=Episode(tokenizer, GAME, GAME.task("train", index), limits))
        for group, index in enumerate(TASKS)
        for number in range(2)
    ]
    engine = TorchEngine(config, max_batch_rows=8)
    engine.load_weights(state, 0)
    proofs = Commitments("sketch", SEED)
    play(engine, seats, params, SEED, sink=proofs)
    rows = [row for seat in seats for row in rollouts_of(seat, lease, proofs)]
    async with coordinator(tmp_path, pool, database_url=f"sqlite:///{tmp_path}/coordinator.db"):
        pass
    return Setting(tmp_path, pool, rows)


def told_of(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def has_turns(row: Rollout) -> bool:
    return len(row.proof) // 8 < len(row.completion_tokens)


async def test_honest_games_are_accepted(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert any(map(has_turns, setting.rows)), "else one turn would do"
    assert setting.verify(setting.rows, "--pool", str(setting.folder)) == 0
    told = told_of(capsys)
    assert told["is_accepted"]
    assert told["measured"]["proof/max_margin"] == 0.0  # type: ignore[index]
    assert setting.verify(setting.rows, "--pool", str(setting.folder), "--tasks", "3,7") == 0


def of_somebody_else(row: Rollout) -> Rollout:
    """Something that the environment did not say, between two turns."""
    told = np.flatnonzero(row.logprobs == 0)
    tokens = row.completion_tokens.copy()
    tokens[told[0]] = tokens[told[0]] ^ 1
    return replace(row, completion_tokens=tokens)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_somebody_else, "transcript"),
        (lambda row: replace(row, proof=b"\x11" * len(row.proof)), "activations"),
        (lambda row: replace(row, logprobs=np.where(row.logprobs < 0, row.logprobs * 3 - 1, 0)), "logprobs"),
    ],
)
async def test_a_forged_game_is_named(
    setting: Setting, capsys: pytest.CaptureFixture[str], change: Callable[[Rollout], Rollout], reason: str
) -> None:
    at = next(number for number, row in enumerate(setting.rows) if has_turns(row))
    rows = [change(row) if number == at else row for number, row in enumerate(setting.rows)]
    assert setting.verify(rows, "--pool", str(setting.folder)) == 1
    told = told_of(capsys)
    assert (told["is_accepted"], told["reason"]) == (False, reason)


async def test_what_is_missing_is_said_in_a_sentence(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    pool = ("--pool", str(setting.folder))
    other = with_fields(setting.pool, temperature=0.5)
    for rows, options, file_pool, words in (
        (setting.rows, (), None, "need --pool"),
        (setting.rows, ("--pool", str(setting.folder / "m")), None, "address of a coordinator"),
        (setting.rows, (*pool, "--tasks", "3"), None, "give the task indices"),
        (setting.rows, (*pool, "--tasks", "3,x"), None, "must be the task indices"),
        (setting.rows, (*pool, "--tasks", "3,8"), None, "the file has 'train/7'"),
        (setting.rows[:4], pool, None, "nothing to replay"),
        (setting.rows, pool, other, "not a rollout file of pool"),
    ):
        assert setting.verify(list(rows), *options, pool=file_pool) not in (0, 1)
        told = capsys.readouterr().err
        assert words in told
        assert "Traceback" not in told


async def test_rules_are_asked_of_a_coordinator(
    setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with coordinator(tmp_path, setting.pool, database_url=f"sqlite:///{tmp_path}/coordinator.db") as url:
        assert await asyncio.to_thread(setting.verify, setting.rows, "--pool", url) == 0
    assert told_of(capsys)["is_accepted"]
