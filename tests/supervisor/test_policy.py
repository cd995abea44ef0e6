"""Exits and times in, decisions out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.supervisor.policy import Decision, EndRun, GiveUp, Left, Restart, RestartPolicy, Roster
from farflung.wire.node import Role

POLICY = RestartPolicy(first_delay_s=1.0, max_delay_s=5.0, max_restarts=4, healthy_after_s=60.0)
SIGKILL = -9


def roster(*names: str) -> Roster:
    """A roster of `worker-1`, `trainer`, ..., all started at time 0."""
    result = Roster({name: Role(name.partition("-")[0]) for name in names}, POLICY)
    for name in result.due(0.0):
        result.started(name, 0.0)
    return result


def crash_now(result: Roster, name: str, now_s: float) -> Decision:
    result.started(name, now_s)
    return result.exited(name, SIGKILL, now_s)


def test_all_roles_start_at_once_in_the_given_order() -> None:
    result = Roster({"coordinator": Role.COORDINATOR, "worker-1": Role.WORKER}, POLICY)
    assert result.due(0.0) == ["coordinator", "worker-1"]
    result.started("coordinator", 0.0)
    assert result.due(0.0) == ["worker-1"]


def test_the_trainer_that_ends_well_finishes_the_run() -> None:
    assert roster("trainer").exited("trainer", 0, 5.0) == EndRun(kind="finished")


@pytest.mark.parametrize("name", ["coordinator", "trainer", "worker-1", "validator-1", "relay-1"])
def test_a_user_error_of_any_role_ends_the_run(name: str) -> None:
    assert roster("worker-1", "worker-2", name).exited(name, 2, 5.0) == EndRun(kind="user_error")


@pytest.mark.parametrize("name", ["coordinator", "trainer", "worker-1", "validator-1", "relay-1"])
@pytest.mark.parametrize("code", [1, SIGKILL, -15, 130])
def test_a_crashed_role_starts_again_after_a_pause(name: str, code: int) -> None:
    result = roster(name)
    assert result.exited(name, code, 5.0) == Restart(after_s=1.0, num_crashes=1)
    assert result.due(5.9) == []
    assert result.due(6.0) == [name]


@pytest.mark.parametrize("name", ["worker-1", "validator-1", "relay-1"])
def test_a_role_that_left_in_order_comes_back_if_the_run_goes_on_and_this_is_no_crash(name: str) -> None:
    result = roster(name)
    assert result.exited(name, 0, 5.0) == Left(returns_after_s=5.0)
    assert result.due(9.9) == []
    assert result.due(10.0) == [name]
    result.started(name, 10.0)
    assert result.exited(name, SIGKILL, 11.0) == Restart(after_s=1.0, num_crashes=1)


def test_a_coordinator_that_ends_by_itself_has_crashed_whatever_its_code() -> None:
    assert roster("coordinator").exited("coordinator", 0, 5.0) == Restart(after_s=1.0, num_crashes=1)


def test_the_pause_doubles_with_each_crash_in_a_row_up_to_its_bound() -> None:
    result = roster("worker-1")
    decisions = [crash_now(result, "worker-1", now_s) for now_s in (1.0, 2.0, 3.0, 4.0)]
    assert [d.after_s for d in decisions if isinstance(d, Restart)] == [1.0, 2.0, 4.0, 5.0]


def test_a_role_that_lived_long_enough_starts_its_row_of_crashes_anew() -> None:
    result = roster("worker-1")
    crash_now(result, "worker-1", 1.0)
    crash_now(result, "worker-1", 2.0)
    result.started("worker-1", 10.0)
    assert result.exited("worker-1", SIGKILL, 70.0) == Restart(after_s=1.0, num_crashes=1)


def test_one_crash_too_many_gives_up_a_worker_while_others_go_on_and_ends_the_run_with_the_last() -> None:
    result = roster("worker-1", "worker-2")
    for now_s in range(4):
        assert isinstance(crash_now(result, "worker-1", now_s), Restart)
    assert crash_now(result, "worker-1", 5.0) == GiveUp(num_crashes=5)
    assert result.due(1e9) == []
    for now_s in range(4):
        assert isinstance(crash_now(result, "worker-2", now_s), Restart)
    assert crash_now(result, "worker-2", 5.0) == EndRun(kind="gave_up")


@given(codes=st.lists(st.integers(-15, 255).filter(lambda code: code not in (0, 2)), min_size=1, max_size=12))
def test_a_role_is_restarted_at_most_max_restarts_times_in_a_row(codes: list[int]) -> None:
    result = roster("coordinator")
    num_restarts = 0
    for number, code in enumerate(codes):
        decision = result.exited("coordinator", code, float(number))
        if isinstance(decision, EndRun):
            break
        num_restarts += 1
        assert result.due(number + decision.after_s) == ["coordinator"] if isinstance(decision, Restart) else False
        result.started("coordinator", float(number))
    assert num_restarts == min(len(codes), POLICY.max_restarts)


def test_the_last_relay_is_given_up_and_the_run_goes_on_without() -> None:
    result = roster("coordinator", "relay-1")
    for _ in range(POLICY.max_restarts):
        assert isinstance(crash_now(result, "relay-1", 1.0), Restart)
    assert crash_now(result, "relay-1", 2.0) == GiveUp(num_crashes=POLICY.max_restarts + 1)
    assert result.due(1000.0) == []
