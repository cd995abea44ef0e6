r"""Equations and inequalities: trees -> values.

x = 5, f(x) = x^2, (x,y) = (1,2)    a named value
2x - y + 3 = 0                      an equation, as left - right
0 < x \le 3, 2x > 6, |x| < 3        a set of real numbers, if one variable occurs and linearly
x = \frac32 = 1.5, 2 + 3 = 5        the value, if all constant parts are equal
\frac13 \approx 0.33                the value before the sign
"""

from collections.abc import Callable

from farflung.rewards.math import polynomial, scalar, sets
from farflung.rewards.math.arithmetic import bound_value, has_plus_minus, scalar_value
from farflung.rewards.math.limits import Budget, NotExact
from farflung.rewards.math.polynomial import UNIT, Kind, Rational
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.syntax import Call, Dots, Group, Name, Node, Number, Relation
from farflung.rewards.math.values import Assigned, Bound, Congruence, Equation, Infinite, RealSet, Sequence, Value
from farflung.rewards.math.word_lists import NUMBER_SET_NAMES

Evaluator = Callable[[Node, Budget], Value]
"""The meaning of any tree, given by `evaluate`, which knows this module."""

_REAL_CONSTANTS = (Kind.CONSTANT, Kind.PRIME, Kind.LOG)
_ORDERS = ("<", ">", "<=", ">=")
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_CONSTANT_NAMES = NUMBER_SET_NAMES | {"pi", "e", "i", "infinity", "emptyset", "circ"}


def relation_value(relation: Relation, budget: Budget, evaluate: Evaluator) -> Value:
    """Meaning of a relation; raises NotExact, OverLimits, Undefined."""
    terms, signs = relation.terms, relation.signs
    if "~" in signs:
        terms, signs = _before_approximation(terms, signs)
        if not signs:
            return evaluate(terms[0], budget)
    if all(sign == "=" for sign in signs):
        return _equality(terms, budget, evaluate)
    if signs == ("in",):
        return _membership(terms[0], evaluate(terms[1], budget))
    if all(sign in _ORDERS or sign == "!=" for sign in signs):
        return _inequality(terms, signs, budget)
    raise NotExact("a mixed chain of relations")


def congruence_value(relation: Relation, modulus: Node, budget: Budget) -> Congruence:
    """`x = 13` modulo 9 as x = 4; raises NotExact for more than one name and one integer."""
    if relation.signs != ("=",) or not isinstance(relation.terms[0], Name):
        raise NotExact("a congruence that is not solved for its letter")
    residue = scalar.as_integer(scalar_value(relation.terms[1], budget))
    size = scalar.as_integer(scalar_value(modulus, budget))
    if residue is None or size is None or size <= 0:
        raise NotExact("a congruence of other things than integers")
    return Congruence(relation.terms[0].text, residue % size, size)


def _before_approximation(terms: tuple[Node, ...], signs: tuple[str, ...]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    first = signs.index("~")
    if first == 0 and names_of(terms[0]) is not None:  # x ~ 3.14: there is nothing better
        return terms, tuple("=" if sign == "~" else sign for sign in signs)
    if first == 0 and isinstance(terms[0], Number) and isinstance(terms[0].value, int):
        raise NotExact("an integer that is about something")  # 5 ~ 6 claims either
    return terms[: first + 1], signs[:first]


def _equality(terms: tuple[Node, ...], budget: Budget, evaluate: Evaluator) -> Value:
    if all(term == terms[0] for term in terms):
        raise NotExact("an identity, which claims nothing")
    names = names_of(terms[0])
    if names is None and len(terms) == 2 and names_of(terms[1]) is not None:
        terms = (terms[1], terms[0])
        names = names_of(terms[0])
    if names is not None:
        value = _common_value(terms[1:], budget, evaluate)
        return Assigned(names, value, _difference(terms[0], value, budget))
    values = [scalar_value(term, budget) for term in terms]
    if len(values) == 2 and any(scalar.variables(value) for value in values):
        return Equation(scalar.subtract(values[0], values[1], budget))
    return _common_value(terms, budget, evaluate)


def _common_value(terms: tuple[Node, ...], budget: Budget, evaluate: Evaluator) -> Value:
    value = evaluate(terms[0], budget)
    for term in terms[1:]:
        other = evaluate(term, budget)
        if not (isinstance(value, Scalar) and isinstance(other, Scalar)):
            raise NotExact("a chain of equations between other things than numbers")
        if not scalar.is_zero(scalar.subtract(value, other, budget)):
            raise NotExact("a chain of equations whose parts differ")
    return value


def _difference(left: Node, value: Value, budget: Budget) -> Scalar | None:
    if not (isinstance(left, Name) and isinstance(value, Scalar)):
        return None
    return scalar.subtract(scalar_value(left, budget), value, budget)


def names_of(node: Node) -> tuple[str, ...] | None:
    """The names that a left side gives values to: `x`, `f(x)`, `(x, y)`; None if it is something else."""
    match node:
        case Name(text) if text not in _CONSTANT_NAMES:
            return (text,)
        case Call(text, arguments) if len(text) == 1 or text.endswith(("'", "^-1")):
            return (f"{text}{arguments!r}",)  # P(A) and P(B) are two things
        case Group("(", items, ")") if all(isinstance(item, Name) for item in items):
            return tuple(item.text for item in items if isinstance(item, Name))
    return None


def _membership(element: Node, members: Value) -> Value:
    names = names_of(element)
    if names is None:
        raise NotExact("membership of something that is not named")
    if isinstance(members, Sequence):
        interval = as_interval(members)
        if interval is None:
            raise NotExact("membership in something that is not a set")
        members = interval
    if isinstance(members, RealSet) and len(names) == 1:
        return RealSet(members.intervals, names[0])
    return Assigned(names, members, None)


def as_interval(sequence: Sequence) -> RealSet | None:
    """Two items between round or square brackets as an interval; None if they are not scalars or infinities."""
    if len(sequence.items) != 2 or sequence.opening not in ("(", "[") or sequence.closing not in (")", "]"):
        return None
    low, high = sequence.items
    if not (isinstance(low, Scalar | Infinite) and isinstance(high, Scalar | Infinite)):
        return None
    part = sets.interval(low, high, is_low_closed=sequence.opening == "[", is_high_closed=sequence.closing == "]")
    return RealSet(sets.canonical([part]))


def _inequality(terms: tuple[Node, ...], signs: tuple[str, ...], budget: Budget) -> RealSet:
    result: RealSet | None = None
    for left, sign, right in zip(terms, signs, terms[1:], strict=False):
        if has_plus_minus(left) or has_plus_minus(right) or isinstance(left, Dots) or isinstance(right, Dots):
            raise NotExact("an inequality with several values")
        piece = _compared(left, sign, right, budget)
        result = piece if result is None else sets.intersection(result, piece)
    assert result is not None
    return result


def _compared(left: Node, sign: str, right: Node, budget: Budget) -> RealSet:
    if isinstance(right, Call) and right.name == "abs":
        left, sign, right = right, _MIRRORED[sign], left
    if isinstance(left, Call) and left.name == "abs":
        return _absolute(left.arguments[0], sign, right, budget)
    low, high = bound_value(left, budget), bound_value(right, budget)
    if isinstance(low, Infinite) or isinstance(high, Infinite):
        return _beside_infinity(low, sign, high)
    return _linear(scalar.subtract(low, high, budget), sign, budget)


def _absolute(inner: Node, sign: str, limit: Node, budget: Budget) -> RealSet:
    """|u| < c is -c < u < c, and |u| > c is u < -c or u > c, for a rational c > 0."""
    value, bound = scalar_value(inner, budget), scalar_value(limit, budget)
    size = scalar.as_rational(bound)
    if size is None or size <= 0 or sign == "!=":
        raise NotExact("an absolute value beside something else than a positive number")
    upper = _linear(scalar.subtract(value, bound, budget), sign, budget)
    lower = _linear(scalar.add(value, bound, budget), _MIRRORED[sign], budget)
    return sets.intersection(upper, lower) if sign in ("<", "<=") else sets.union([upper, lower])


def _beside_infinity(low: Bound, sign: str, high: Bound) -> RealSet:
    """`x < oo` says only that x is a number."""
    name = next((only_variable(side) for side in (low, high) if isinstance(side, Scalar)), None)
    is_trivial = (isinstance(high, Infinite) and high.sign > 0 and sign in ("<", "<=")) or (
        isinstance(low, Infinite) and low.sign < 0 and sign in ("<", "<=")
    )
    if name is None or not is_trivial:
        raise NotExact("an inequality with infinity")
    return RealSet((sets.EVERYTHING,), name)


def _linear(difference: Scalar, sign: str, budget: Budget) -> RealSet:
    """Solutions of a*x + b (sign) 0 for a rational a and a constant b."""
    name = only_variable(difference)
    if name is None or difference.denominator != polynomial.ONE:
        raise NotExact("an inequality that is not linear in one variable")
    linear = frozenset([(polynomial.Atom(Kind.VARIABLE, name), 1)])
    slope: Rational = difference.numerator.get(linear, 0)
    rest = {monomial: value for monomial, value in difference.numerator.items() if monomial != linear}
    if not slope or any(atom.kind not in _REAL_CONSTANTS for atom in polynomial.atoms(rest)):
        raise NotExact("an inequality that is not linear in one variable")
    bound = scalar.divide(scalar.negate(Scalar(rest), budget), Scalar({UNIT: slope}), budget)
    if slope < 0:
        sign = _MIRRORED[sign]
    if sign == "!=":
        return RealSet(sets.complement([bound]).intervals, name)
    part = sets.above(bound, is_closed=sign == ">=") if sign[0] == ">" else sets.below(bound, is_closed=sign == "<=")
    return RealSet((part,), name)


def only_variable(value: Scalar) -> str | None:
    """The one variable of a scalar, None if it has none or several."""
    names = scalar.variables(value)
    return names.pop() if len(names) == 1 else None
