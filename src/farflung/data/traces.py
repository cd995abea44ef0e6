"""Verified rollouts as data sets for others: traces with a card, chats for fine-tuning, INTELLECT-2's rollout schema.

This module does not know where rollouts come from.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pyarrow as pa
import pyarrow.parquet as pq

from farflung.wire.rollout import Rollout

ROWS_PER_SHARD = 10_000
"""As the published generators of traces write them (genesys)."""
TRACE_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("prompt", pa.string()),
        ("llm_response", pa.string()),
        ("score", pa.float32()),
        ("correct", pa.float32()),
        ("group", pa.string()),
        ("policy_version", pa.int64()),
        ("target_length", pa.int32()),
        ("stop_reason", pa.string()),
        ("input_tokens", pa.list_(pa.int32())),
        ("output_tokens", pa.list_(pa.int32())),
        ("output_logprobs", pa.list_(pa.float32())),
    ]
)
PRIME_RL_SCHEMA = pa.schema(
    [
        ("input_tokens", pa.list_(pa.int32())),
        ("output_tokens", pa.list_(pa.int32())),
        ("input_logprobs", pa.list_(pa.float32())),
        ("output_logprobs", pa.list_(pa.float32())),
        ("advantages", pa.float32()),
        ("rewards", pa.float32()),
        ("task_rewards", pa.float32()),
        ("length_penalties", pa.float32()),
        ("proofs", pa.binary()),
        ("step", pa.int32()),
        ("target_lengths", pa.int32()),
    ]
)
"""Columns in the order that its loader demands."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Trace:
    """One accepted rollout with the validators' reward."""

    problem_id: str
    messages: tuple[Mapping[str, str], ...]
    completion: str
    reward: float | None
    correct: float | None
    slot: int
    rollout: Rollout

    @property
    def group(self) -> str:
        return f"{self.slot}-{self.rollout.group}"


def write_traces(traces: Sequence[Trace], folder: Path) -> int:
    """Parquet shards; returns how many."""
    folder.mkdir()
    shards = [traces[start : start + ROWS_PER_SHARD] for start in range(0, len(traces), ROWS_PER_SHARD)]
    for number, shard in enumerate(shards):
        rows = [
            {
                "problem_id": trace.problem_id,
                "prompt": json.dumps([dict(message) for message in trace.messages], ensure_ascii=False),
                "llm_response": trace.completion,
                "score": trace.reward,
                "correct": trace.correct,
                "group": trace.group,
                "policy_version": trace.rollout.policy_version,
                "target_length": trace.rollout.target_length,
                "stop_reason": trace.rollout.stop_reason.value,
                "input_tokens": trace.rollout.prompt_tokens,
                "output_tokens": trace.rollout.completion_tokens,
                "output_logprobs": trace.rollout.logprobs,
            }
            for trace in shard
        ]
        name = f"train-{number:05d}-of-{len(shards):05d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=TRACE_SCHEMA), folder / name, compression="zstd")
    return len(shards)


def write_chats(traces: Iterable[Trace], path: Path) -> int:
    """The right answers as chats, each text once per problem (rejection sampling); returns how many."""
    seen: set[tuple[str, str]] = set()
    with path.open("w", encoding="utf-8") as file:
        for trace in traces:
            key = (trace.problem_id, trace.completion)
            if trace.correct != 1.0 or key in seen or not trace.completion:
                continue
            seen.add(key)
            messages = [*map(dict, trace.messages), {"role": "assistant", "content": trace.completion}]
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    return len(seen)


def write_prime_rl(traces: Sequence[Trace], path: Path) -> None:
    """Those with a reward, with the advantage over the mean of their group."""
    groups: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        if trace.reward is not None:
            groups[trace.group].append(trace.reward)
    means = {group: mean(rewards) for group, rewards in groups.items()}
    rows = [
        {
            "input_tokens": trace.rollout.prompt_tokens,
            "output_tokens": trace.rollout.completion_tokens,
            "input_logprobs": [0.0] * len(trace.rollout.prompt_tokens),
            "output_logprobs": trace.rollout.logprobs,
            "advantages": trace.reward - means[trace.group],
            "rewards": trace.reward,
            "task_rewards": trace.reward if trace.correct is None else trace.correct,
            "length_penalties": 0.0 if trace.correct is None else trace.correct - trace.reward,
            "proofs": trace.rollout.proof,
            "step": trace.rollout.policy_version,
            "target_lengths": trace.rollout.target_length,
        }
        for trace in traces
        if trace.reward is not None
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=PRIME_RL_SCHEMA), path)


def write_card(traces: Sequence[Trace], path: Path, *, name: str, env: str, licence: str) -> None:
    """What the data set is, in the form that hubs read."""
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    right = sum(trace.correct == 1.0 for trace in traces)
    num_tasks = len({trace.problem_id for trace in traces})
    versions = sorted({trace.rollout.policy_version for trace in traces})
    histogram = Counter(round(reward, 1) for reward in rewards)
    lines = "\n".join(f"| {value:g} | {histogram[value]} |" for value in sorted(histogram))
    path.write_text(
        f"""---
license: {licence}
task_categories: [text-generation]
tags: [reinforcement-learning, reasoning-traces, farflung]
size_categories: [{_size(len(traces))}]
configs:
- config_name: default
  data_files: data/*.parquet
---

# Traces of pool {name}

{len(traces)} completions of {num_tasks} tasks of the environment `{env}`, sampled by policy versions {versions[0]} to \
{versions[-1]}. Every one was accepted by a validator, which computed its reward; {right} are right.

| column | meaning |
|---|---|
| `problem_id` | environment and task |
| `prompt` | messages, as JSON |
| `llm_response` | the completion as text |
| `score`, `correct` | the validator's reward, and 1 if the task itself was solved |
| `group` | completions that were sampled for one task together |
| `policy_version`, `target_length`, `stop_reason` | how it was sampled |
| `input_tokens`, `output_tokens`, `output_logprobs` | ids, and logprobs at the sampling temperature |

`sft.jsonl` has the right completions as chats, each text once per task.

| score | completions |
|---|---|
{lines}
""",
        encoding="utf-8",
    )


def _size(count: int) -> str:
    for limit, label in ((1000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")):
        if count < limit:
            return label
    return "n>1M"
