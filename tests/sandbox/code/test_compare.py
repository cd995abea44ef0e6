"""Equality of what was expected and what a hostile program gave."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sandbox.code.compare import same_text, same_value
from farflung.sandbox.code.inside.codec import to_tree

HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.tuples(inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
PLAIN = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(HASHABLE, inner, max_size=4) | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=12,
)
ANY_TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["t", "d", "s", "fs", "i", "f", "b", "c", "q", "n", "r", "z"]), inner, max_size=2
        )
    ),
    max_leaves=8,
)


def same(expected: Any, value: Any, *, tuples: bool = True, tolerance: float = 0.0) -> bool:
    return same_value(to_tree(expected), to_tree(value), tuples_are_lists=tuples, tolerance=tolerance)


@given(PLAIN)
def test_every_value_equals_itself(value: Any) -> None:
    assert same(value, value)


@given(PLAIN, ANY_TREE)
def test_no_tree_of_a_stranger_raises(value: Any, tree: Any) -> None:
    assert same_value(to_tree(value), tree, tuples_are_lists=True, tolerance=0.1) in (True, False)


@given(PLAIN, PLAIN)
def test_equality_is_symmetric_without_a_tolerance(one: Any, other: Any) -> None:
    assert same(one, other) == same(other, one)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (1, 1.0),
        (True, 1),
        ([1, 2], (1, 2)),
        ({1, 2}, frozenset({2, 1})),
        ({"a": 1, "b": [2]}, {"b": (2,), "a": 1.0}),
        (math.nan, math.nan),
        (10**40, 10**40),
        ({(1, 2): 3}, {(1.0, 2): 3}),
        (math.inf, math.inf),
        (0.0, -0.0),
        ({True: "x"}, {1: "x"}),
    ],
)
def test_equal_values(expected: Any, value: Any) -> None:
    assert same(expected, value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (1, "1"),
        (None, False),
        (0, None),
        ("", None),
        ([], None),
        ([], ""),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ({1}, [1]),
        ({1: 2}, {1: 3}),
        ({1: 2}, {2: 2}),
        (b"a", "a"),
        (math.inf, -math.inf),
        (math.inf, 1e308),
        (10**40, 10**40 + 1),
        (2**53 + 1, float(2**53)),
        (0.3, 0.1 + 0.2),
    ],
)
def test_different_values(expected: Any, value: Any) -> None:
    assert not same(expected, value)


def test_a_tuple_is_no_list_where_that_is_said() -> None:
    assert not same([1], (1,), tuples=False)
    assert same((1,), (1,), tuples=False)


def test_a_tolerance_is_absolute_for_small_numbers_and_relative_for_large_ones() -> None:
    assert same([0.3, 1e9], [0.1 + 0.2, 1e9 + 1], tolerance=1e-6)
    assert not same(1.0, 1.1, tolerance=1e-6)
    assert not same(math.inf, 1.0, tolerance=1e-6)
    assert not same(1.0, math.inf, tolerance=1e-6)


@pytest.mark.parametrize(
    ("expected", "output", "compare", "tolerance", "is_same"),
    [
        ("1 2\n3\n", "1 2 \n3", "lines", 0.0, True),
        ("1 2\n", "1  2\n", "lines", 0.0, False),
        ("1\n\n2", "1\n2", "lines", 0.0, False),
        (" 1", "1", "lines", 0.0, False),
        ("1 2\n3\n", "1\n2 3", "tokens", 0.0, True),
        ("0.5", "0.50", "tokens", 0.0, False),
        ("0.5 x", "0.50 x", "tokens", 1e-9, True),
        ("nan", "0", "tokens", 1e-9, False),
        ("1", "inf", "tokens", 1e-9, False),
        ("x", "0", "tokens", 1.0, False),
        ("1 2", "1", "tokens", 1.0, False),
        ("1\n", "1", "exact", 0.0, False),
        ("1\n", "1\n", "exact", 0.0, True),
        ("1", "", "lines", 0.0, False),
    ],
)
def test_outputs(expected: str, output: str, compare: str, tolerance: float, is_same: bool) -> None:
    assert same_text(expected, output, compare=compare, tolerance=tolerance) is is_same
