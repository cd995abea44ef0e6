"""Whom to ask next, from what each has shown."""

import math

from farflung.broadcast.sources import SourceBook


def book(*relays: str) -> SourceBook:
    made = SourceBook("origin")
    made.offer(relays)
    return made


def finish(of: SourceBook, name: str, *, num_bytes: int = 1000, took_s: float = 1.0) -> None:
    of.asked(name)
    of.answered(name, num_bytes, took_s)


def test_the_faster_one_is_asked_until_it_is_busy() -> None:
    made = book("fast", "slow")
    finish(made, "fast", took_s=0.1)
    finish(made, "slow", took_s=0.4)
    asked = []
    for _ in range(5):
        name = made.choose(0.0)
        assert name is not None
        made.asked(name)
        asked.append(name)
    assert asked == ["fast", "fast", "fast", "slow", "fast"]  # 4 : 1, and a tie goes by name


def test_one_that_nobody_knows_is_tried() -> None:
    made = book("a", "b")
    finish(made, "b", took_s=0.001)
    made.asked("b")
    assert made.choose(0.0) == "a"


def test_failures_rest_twice_as_long_each_time_and_an_answer_ends_that() -> None:
    made = book("a")
    now_s = 10.0
    for rest_s in (0.5, 1.0, 2.0):
        made.asked("a")
        made.failed("a", now_s)
        assert made.choose(now_s + rest_s - 0.01) == "origin"
        now_s += rest_s
        assert made.choose(now_s) == "a"
    finish(made, "a")
    made.asked("a")
    made.failed("a", 20.0)
    assert made.choose(20.5) == "a"


def test_requests_that_fail_together_are_one_failure() -> None:
    made = book("a")
    for _ in range(5):
        made.asked("a")
    for _ in range(5):
        made.failed("a", 10.0)
    assert made.choose(10.5) == "a"


def test_one_that_is_overtaken_again_and_again_rests_like_one_that_fails() -> None:
    made = book("silent", "slow")
    now_s = 0.0
    for rest_s in (0.5, 1.0, 2.0, 4.0):
        made.asked("silent")
        made.overtaken("silent", 1000, now_s, now_s + 1)
        now_s += 1
        assert made.choose(now_s + rest_s - 0.01, {"slow"}) == "origin"
        now_s += rest_s
        assert made.choose(now_s, {"slow"}) == "silent"
    finish(made, "slow", took_s=0.1)
    assert made.choose(now_s) == "slow"


def test_after_a_failure_one_request_has_to_be_answered_before_there_are_several() -> None:
    made = book("a")
    made.asked("a")
    made.failed("a", 0.0)
    assert made.choose(0.5) == "a"
    made.asked("a")
    assert made.choose(0.5) == "origin"
    made.answered("a", 1000, 1.0)
    made.asked("a")
    assert made.choose(0.5) == "a"


def test_what_is_expected_of_one_that_says_nothing_follows_what_the_others_show() -> None:
    made = book("a", "b")
    made.asked("a")
    assert made.expected_s("a", 1 << 20, 0.0) > 1
    finish(made, "b", num_bytes=1 << 20, took_s=0.01)
    assert made.expected_s("a", 1 << 20, 0.0) == 0.01
    made.asked("a")
    assert made.expected_s("a", 1 << 20, 0.0) == 0.01  # sending two takes it longer, and the other one is free
    made.asked("b")
    assert made.expected_s("a", 1 << 20, 0.0) == 0.02
    made.offer(["b"])
    assert made.expected_s("a", 1 << 20, 0.0) == 0.0


def test_no_more_is_waited_for_a_slow_one_than_for_another_that_could_be_asked() -> None:
    made = book("fast", "slow")
    finish(made, "fast", took_s=0.1)
    finish(made, "slow", took_s=10.0)
    made.asked("slow")
    assert made.expected_s("slow", 1000, 0.0) == 0.1
    made.asked("fast")
    assert made.expected_s("slow", 1000, 0.0) == 0.2


def test_when_all_rest_it_is_known_for_how_long_and_when_all_lied_forever() -> None:
    made = book("a")
    for name in ("a", "origin"):
        made.asked(name)
        made.failed(name, 5.0)
    assert made.choose(5.0) is None
    assert made.ready_in_s(5.25) == 0.25
    for name in ("a", "origin"):
        made.asked(name)
        made.lied(name, "zeros")
    assert math.isinf(made.ready_in_s(99.0))
    assert made.liars == {"a": "zeros", "origin": "zeros"}


def test_a_server_that_left_while_it_was_asked_is_no_error() -> None:
    made = book("a")
    made.asked("a")
    made.offer([])
    made.answered("a", 10, 1.0)
    made.failed("a", 1.0)
    made.left("a")
    made.lied("a", "")
    assert made.choose(0.0) == "origin"


def test_a_small_chunk_does_not_make_a_slow_server_of_one_that_larger_ones_were_not_asked_of() -> None:
    made = book("big", "small")
    finish(made, "small", num_bytes=44, took_s=0.002)
    finish(made, "big", num_bytes=1 << 20, took_s=0.1)
    assert made.choose(0.0) == "small", "nobody knows how fast it is"
    finish(made, "small", num_bytes=1 << 20, took_s=0.05)
    finish(made, "small", num_bytes=44, took_s=0.002)
    assert made.choose(0.0) == "small", "what it did with large ones stands"
    made.asked("small")
    made.overtaken("small", 44, 0.0, 1.0)
    assert made.choose(10.0) == "small"


def test_one_that_nobody_knows_is_tried_before_the_fastest_even_if_nothing_else_is_under_way() -> None:
    made = book("a", "z")
    finish(made, "z", took_s=0.001)
    assert made.choose(0.0) == "a"
