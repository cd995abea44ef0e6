"""What crosses the wall comes out as it went in, and as nothing but data."""

import json
import math
from collections import OrderedDict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sandbox.code.inside.codec import MAX_DEPTH, NotPlain, from_tree, to_tree
from farflung.sandbox.code.inside.job import pack, unpack
from farflung.sandbox.code.inside.json_text import dumps, loads

HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.fractions(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
PLAIN = st.recursive(
    HASHABLE | st.complex_numbers(allow_nan=False) | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HASHABLE, inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    assert from_tree(json.loads(dumps(to_tree(value)))) == value


def test_types_are_kept() -> None:
    value = (1, [2.0, True], {3}, frozenset({4}), b"5", {6: (7,)}, Fraction(1, 3), Decimal("1.0"), 1j, math.inf, None)
    back = from_tree(json.loads(dumps(to_tree(value))))
    assert repr(back) == repr(value)


def test_subclasses_travel_as_their_base() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    point = namedtuple("point", "x y")  # noqa: PYI024
    assert to_tree([Liar(3), point(1, 2), OrderedDict(a=1)]) == [3, {"t": [1, 2]}, {"d": [["a", 1]]}]
    assert type(to_tree(Liar(3))) is int


@pytest.mark.parametrize("value", [object(), print, int, ValueError(), iter(()), range(3)])
def test_nothing_else_crosses(value: object) -> None:
    with pytest.raises(NotPlain):
        to_tree(value)
    assert to_tree([value], lambda _: 7) == [{"r": 7}]


def test_nesting_is_bounded_both_ways() -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(NotPlain, match="deeper"):
        to_tree(deep)
    with pytest.raises(NotPlain, match="deeper"):
        from_tree(deep)


@pytest.mark.parametrize("tree", [{}, {"x": 1}, {"i": "z"}, {"t": 1}, {"r": 0}, {"d": [[1]]}, {"a": 1, "b": 2}])
def test_malformed_trees_are_refused(tree: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_tree(tree)


@pytest.mark.parametrize("tag", ["s", "fs", "d"])
def test_keys_that_were_chosen_to_collide_are_refused_and_others_are_not(tag: str) -> None:
    def tree(step: int) -> Any:
        keys = [to_tree(number * step) for number in range(1, 5000)]
        return {tag: [[key, 1] for key in keys] if tag == "d" else keys}

    assert len(from_tree(tree(1 << 20))) == 4999
    with pytest.raises(NotPlain, match="the same hash"):
        from_tree(tree((1 << 61) - 1))


@given(PLAIN)
def test_the_short_way_to_json_writes_what_the_long_way_reads(value: Any) -> None:
    tree = to_tree(value)
    assert json.loads(dumps(tree)) == loads(json.dumps(tree).encode()) == tree


@pytest.mark.parametrize(
    "data", [b"", b" 1", b"1 ", b"1 2", b"[1", b"NaN", b"-Infinity", b"{1:2}", b'"\n"', b"\xff", b"'a'"]
)
def test_the_short_way_reads_one_value_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ValueError):
        loads(data)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_short_way_writes_no_number_without_a_form(value: float) -> None:
    with pytest.raises(ValueError):
        dumps([value])


def test_a_task_crosses_as_it_is() -> None:
    job = {"program": "\udc80 = 'é\0'", "stdin": "", "entry": None, "exports": {"f": {"callable": 3}}, "cpu_s": "0.5"}
    assert unpack(pack(job)) == job
