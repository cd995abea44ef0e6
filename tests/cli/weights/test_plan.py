"""`farflung weights plan`: the rule's answer, from figures that are given and from a pool that runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from farflung.cli import main
from farflung.cli.weights.plan_figures import Figures, measured
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus, Role
from farflung.wire.relay import RelayStatus
from signed_run import signed_run
from tiny_pool import pool_spec

GIVEN = {
    "--step-s": "60", "--batch-tokens": "1e6", "--useful-share": "0.5", "--judge-s": "10", "--max-staleness": "2",
    "--lease-tokens": "8000", "--tokens-per-s": "400", "--patch-bytes": "1000000", "--snapshot-bytes": "100000000",
    "--chunk-bytes": "4000000", "--fan-out": "4", "--depth": "2", "--latency-s": "0.5",
}  # fmt: skip


def plan(*words: str, without: tuple[str, ...] = (), **changes: str) -> int:
    values = {**GIVEN, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    kept = [word for name, value in values.items() if name not in without for word in (name, value)]
    return main.main(["weights", "plan", *kept, *words])


def test_the_answer_is_that_of_the_rule_worked_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--json") == 0
    found = json.loads(capsys.readouterr().out)
    # 1e6 / (0.5 * 400 * 60) workers; 2 * 60 - 10 - 8000 / 400 = 90 s are left, 1 s of them latency, for
    # (1 + 1) rounds of 4 patches of 1 MB, or (25 + 1) rounds of 4 chunks of 4 MB
    assert found["num_workers"] == 84
    assert found["patches"]["upload_bytes_per_s"] == pytest.approx(8e6 / 89)
    assert found["snapshots"]["upload_bytes_per_s"] == pytest.approx(26 * 16e6 / 89)


def test_an_upload_that_is_too_small_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(upload_bytes_per_s="80000") == 1
    assert "a patch is everywhere after 101 s: at most 3 versions stale" in capsys.readouterr().out
    assert plan(upload_bytes_per_s="100000") == 0
    out = capsys.readouterr().out
    assert "a patch is everywhere after 81 s: at most 2 versions stale" in out
    assert "84 workers" in out


def test_where_no_network_is_fast_enough_it_says_what_else_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(tokens_per_s="10") == 1
    out = capsys.readouterr().out
    assert "none is enough" in out
    assert "pool.max_staleness" in out
    assert plan("--json", tokens_per_s="10") == 1
    assert json.loads(capsys.readouterr().out)["patches"]["upload_bytes_per_s"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"without": ("--depth", "--step-s")}, "not given: --step-s, --depth"),
        ({"useful_share": "1.5"}, "--useful-share is 1.5"),
        ({"step_s": "0"}, "--step-s is 0: it must be above 0"),
        ({"judge_s": "-1"}, "--judge-s is -1: it must be at least 0"),
        ({"step_s": "nan"}, "--step-s is nan"),
        ({"tokens_per_s": "inf"}, "--tokens-per-s is inf"),
        ({"depth": "two"}, "invalid int value"),
    ],
)
def test_figures_that_make_no_sense_are_told(
    changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(**changes) == 2
    assert words in capsys.readouterr().err


def test_an_address_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["weights", "plan", "coordinator"]) == 2
    assert "is not the address" in capsys.readouterr().err
    assert main.main(["weights", "plan", "http://127.0.0.1:1"]) == 2
    assert "refused" in capsys.readouterr().err


def worker(name: str, rate: float, *, is_alive: bool = True) -> NodeStatus:
    beat = Heartbeat(
        node=name, role=Role.WORKER, policy_version=1, activity="sampling", busy_s=1, idle_s=1, cpu_s=1,
        tokens_per_s=rate,
    )  # fmt: skip
    return NodeStatus(heartbeat=beat, last_seen_ms=0, is_alive=is_alive)


def relay(number: int, parent: str = "", problem: str = "") -> RelayStatus:
    url = f"http://10.0.0.{number}:7500"
    return RelayStatus(url=url, relay="r", parent=parent, policy_version=1, last_seen_ms=0, problem=problem)


def test_figures_of_a_running_pool(tmp_path: Path) -> None:
    run = signed_run(6)
    manifests = [manifest for _, manifest in sorted(run.manifests.items(), reverse=True)]
    status = PoolStatus(
        pool="p", policy_version=5, nodes=(worker("a", 900.0), worker("b", 300.0), worker("c", 1.0, is_alive=False)),
        slots={"accepted": 40, "rejected": 5, "submitted": 5, "vacant": 7}, drops={}, tokens_generated=50_000,
        tokens_accepted=40_000, outstanding_groups=0, is_finished=False,
        relays=(relay(1), relay(2, "http://10.0.0.1:7500"), relay(3, "http://10.0.0.2:7500", problem="silent")),
    )  # fmt: skip
    found = measured(pool_spec(max_staleness=3), status, manifests)
    patches = [manifest.patch.content.num_bytes for manifest in manifests if manifest.patch is not None]
    assert found.batch_tokens == 8000
    assert found.useful_share == 0.8
    assert found.lease_tokens == 1000
    assert found.tokens_per_s == 300.0
    assert found.max_staleness == 3
    assert found.depth == 3, "coordinator, relay, relay, worker"
    assert found.patch_bytes == round(sum(patches) / len(patches))
    assert found.snapshot_bytes == sum(file.num_bytes for file in manifests[0].files)


def test_a_pool_that_has_just_begun_tells_nothing_that_it_does_not_know() -> None:
    status = PoolStatus(
        pool="p", policy_version=-1, nodes=(), slots={}, drops={}, tokens_generated=0, tokens_accepted=0,
        outstanding_groups=0, is_finished=False,
    )  # fmt: skip
    assert measured(pool_spec(), status, []) == Figures(max_staleness=1, depth=1)
