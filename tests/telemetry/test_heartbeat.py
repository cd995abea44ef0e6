from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.wire.node import Heartbeat, Role


def test_a_heartbeat_says_what_has_been_counted() -> None:
    now = [0.0]
    activity = ActivityClock(lambda: now[0])
    vitals = Vitals("worker-1", Role.WORKER, activity, cpu_s=lambda: 3.0)
    before = vitals.heartbeat()
    assert (before.policy_version, before.tokens, before.tokens_per_s) == (-1, 0, 0.0)

    with activity.busy("sampling"):
        now[0] += 2
        vitals.add_tokens(100)
        vitals.set_policy_version(4)
        vitals.set_capability_class("slow")
        assert vitals.heartbeat() == Heartbeat(
            node="worker-1",
            role=Role.WORKER,
            policy_version=4,
            activity="sampling",
            capability_class="slow",
            busy_s=2.0,
            idle_s=0.0,
            cpu_s=3.0,
            tokens=100,
            tokens_per_s=50.0,
        )


def test_the_rate_is_over_busy_time_and_stays_while_nothing_is_counted() -> None:
    now = [0.0]
    activity = ActivityClock(lambda: now[0])
    vitals = Vitals("w", Role.WORKER, activity)
    with activity.busy("sampling"):
        now[0] += 1
    vitals.add_tokens(10)
    assert vitals.heartbeat().tokens_per_s == 10.0
    with activity.waiting("lease"):
        now[0] += 100
    assert vitals.heartbeat().tokens_per_s == 10.0
    with activity.busy("sampling"):
        now[0] += 1
    vitals.add_tokens(30)
    assert vitals.heartbeat().tokens_per_s == 30.0
