"""Rows as figures at a step."""

import math

from farflung.telemetry.sinks.points import Point, points


def test_each_kind_of_row_has_names_of_its_own() -> None:
    rows = [
        {"kind": "warm_start", "time_s": 1.0, "step": 40, "loss": 2.0, "accuracy": 0.3},
        {"kind": "eval", "time_s": 2.0, "version": 0, "accuracy": 0.31},
        {"kind": "train", "time_s": 3, "version": 1, "reward/mean": 0.5, "drops": {"stale": 2}},
        {"kind": "pool", "time_s": 4.0, "version": -1, "session": 7, "tokens_generated": 9, "slots": {"leased": 1}},
    ]
    assert points(rows) == [
        Point(time_s=1.0, step=40, figures={"warm_start/loss": 2.0, "warm_start/accuracy": 0.3}),
        Point(time_s=2.0, step=0, figures={"eval/accuracy": 0.31}),
        Point(time_s=3.0, step=1, figures={"reward/mean": 0.5, "drops/stale": 2.0}),
        Point(time_s=4.0, step=0, figures={"pool/tokens_generated": 9.0, "pool/slots/leased": 1.0}),
    ]


def test_what_has_no_place_on_a_chart_is_left_out() -> None:
    rows = [
        {"kind": "train", "time_s": 3.0, "version": 1, "a": None, "b": math.nan, "c": "text", "d": [1], "e": 1.5},
        {"kind": "train", "time_s": 3.0, "version": 2, "a": None},
        {"kind": "node", "time_s": 3.0, "busy_s": 1.0},
        {"kind": "train", "version": 3, "e": 1.0},
        {"kind": "train", "time_s": 3.0, "version": "4", "e": 1.0},
    ]
    assert points(rows) == [Point(time_s=3.0, step=1, figures={"e": 1.5})]
