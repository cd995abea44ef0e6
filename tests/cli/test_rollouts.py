"""`farflung rollouts`: what a run accepted becomes a data set that `sft` reads, and a file in another's schema."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from farflung.cli import main
from farflung.data.traces import PRIME_RL_SCHEMA, Trace, write_chats
from farflung.model.folder import save_folder
from farflung.trainer.sft.data import read_examples
from farflung.wire.node import Role
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.verdict import RejectReason
from running_pool import coordinator, crew, publish_version
from tiny_pool import description, pool_spec, tiny_policy

POOL = pool_spec()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two accepted submissions and a rejected one, in the folder of a run."""
    folder = tmp_path_factory.mktemp("run")

    async def work() -> None:
        where = {"store_url": str(folder / "store"), "database_url": f"sqlite:///{folder}/coordinator.db"}
        async with coordinator(folder, POOL, **where) as url, crew(url, POOL) as made:
            await publish_version(await made.client(Role.TRAINER, "trainer"), POOL, tiny_policy())
            await made.deliver(2)
            await made.deliver(1, RejectReason.PROMPT)

    asyncio.run(work())
    files = description().tokenizer.files
    save_folder(folder / "model", description().config, tiny_policy().published_state(), files)
    return folder


def test_accepted_rollouts_become_traces_a_card_and_chats(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """atropos#473, complaint 15, and rl-swarm#22, complaint 56: what was sampled is kept, with what it was worth."""
    out = tmp_path / "traces"
    assert main.main(["rollouts", "publish", str(run), "--out", str(out), "--licence", "mit"]) == 0
    assert "16 traces in 1 shards" in capsys.readouterr().out
    table = pq.read_table(out / "data")
    assert table.num_rows == 16
    assert set(table.column("score").to_pylist()) == {0.0, 1.0}
    assert all(json.loads(prompt)[0]["role"] == "user" for prompt in table.column("prompt").to_pylist())
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert "16 completions of 4 tasks of the environment `sort-digits`" in card
    examples = read_examples(out / "sft.jsonl")
    assert all(example.messages[-1]["role"] == "assistant" for example in examples)
    assert 1 <= len(examples) <= 8, "right ones, each text once"


def test_the_predecessors_schema_has_its_columns_in_its_order(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "prime"
    assert main.main(["rollouts", "export", str(run), "--out", str(out)]) == 0
    table = pq.read_table(out / "rollouts.parquet")
    assert table.schema.equals(PRIME_RL_SCHEMA)
    rewards = np.array(table.column("rewards").to_pylist()).reshape(4, 4)
    advantages = np.array(table.column("advantages").to_pylist()).reshape(4, 4)
    assert np.allclose(advantages, rewards - rewards.mean(axis=1, keepdims=True))
    first = table.slice(0, 1).to_pylist()[0]
    assert len(first["input_logprobs"]) == len(first["input_tokens"])
    assert len(first["output_logprobs"]) == len(first["output_tokens"])


@pytest.mark.parametrize("action", ["publish", "export"])
def test_wrong_input_is_said_in_a_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert main.main(["rollouts", action, str(tmp_path / "nowhere"), "--out", str(tmp_path / "o")]) != 0
    assert "no folder of a run" in capsys.readouterr().err
    assert main.main(["rollouts", action, str(run), "--out", str(tmp_path)]) != 0
    assert "exists" in capsys.readouterr().err


def test_of_equal_right_answers_one_is_kept(tmp_path: Path) -> None:
    def trace(text: str, correct: float | None) -> Trace:
        tokens = np.zeros(1, np.int32)
        rollout = Rollout(
            env="e", task_id="t", group=0, sample=0, prompt_tokens=tokens, completion_tokens=tokens,
            logprobs=np.zeros(1, np.float32), stop_reason=StopReason.EOS, policy_version=0,
        )  # fmt: skip
        return Trace(
            problem_id="e/t", messages=({"role": "user", "content": "q"},), completion=text, reward=correct,
            correct=correct, slot=0, rollout=rollout,
        )  # fmt: skip

    traces = [trace("a", 1.0), trace("a", 1.0), trace("b", 1.0), trace("c", 0.0), trace("d", None), trace("", 1.0)]
    assert write_chats(traces, tmp_path / "x.jsonl") == 2
