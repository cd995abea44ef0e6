r"""Trees -> canonical values: lists, sets, tuples, matrices, and what `arithmetic` and `relations` compute.

\pm 3          the bare list 3, -3
x=1 or x=2     x with the values 1, 2
x<0 or x>1     a union; with "and" an intersection; with a comma whichever is not empty
\{x | x > 3\}  the set (3, oo)
"""

from farflung.rewards.math import scalar, sets
from farflung.rewards.math.arithmetic import bound_value, numeral_value, plus_minus_signs, scalar_value
from farflung.rewards.math.limits import Budget, NotExact
from farflung.rewards.math.relations import as_interval, congruence_value, names_of, relation_value
from farflung.rewards.math.syntax import (
    Builder,
    Congruent,
    Dots,
    Group,
    InBase,
    Listing,
    Matrix,
    Name,
    Node,
    Quantity,
    Ratio,
    Relation,
    SetOperation,
    Words,
)
from farflung.rewards.math.text_answers import canonical_words
from farflung.rewards.math.values import (
    Assigned,
    Collection,
    Gap,
    MatrixOf,
    Measured,
    NumberSet,
    Numeral,
    Proportion,
    RealSet,
    Sequence,
    Text,
    Value,
)
from farflung.rewards.math.word_lists import NUMBER_SET_NAMES

_REALS = RealSet((sets.EVERYTHING,))
_PHRASES: dict[str, Value] = {
    "all real numbers": _REALS,
    "all reals": _REALS,
    "real numbers": _REALS,
    "the real numbers": _REALS,
    "all real": _REALS,
    "empty set": Collection((), is_set=True),
    "the empty set": Collection((), is_set=True),
}
_NAMED_SETS: dict[str, Value] = {
    "emptyset": Collection((), is_set=True),
    **{name: NumberSet(name) for name in NUMBER_SET_NAMES},
    "reals": _REALS,
    "reals+": RealSet((sets.above(scalar.ZERO, is_closed=False),)),
    "reals-": RealSet((sets.below(scalar.ZERO, is_closed=False),)),
}


def evaluate(node: Node, budget: Budget) -> Value:
    """Meaning of a tree; raises NotExact for what has none here, Undefined, OverLimits."""
    budget.spend()
    match node:
        case Words(text):
            words = canonical_words(text)
            return _PHRASES.get(words.lower(), Text(words))
        case Name(text) if text in _NAMED_SETS:
            return _NAMED_SETS[text]
        case Dots():
            return Gap()
        case Listing((Relation((name, _), ("!=",)), *_) as items, ","):
            others = [item if isinstance(item, Relation) else Relation((name, item), ("!=",)) for item in items]
            return _listing([evaluate(item, budget) for item in others], "and")  # x != 1, 2
        case Listing(items, separator):
            return _listing([evaluate(item, budget) for item in items], separator)
        case Group(opening, items, closing):
            return _group(opening, items, closing, budget)
        case Relation():
            return relation_value(node, budget, evaluate)
        case Congruent(relation, modulus):
            return congruence_value(relation, modulus, budget)
        case SetOperation(operation, left, right):
            return _set_operation(operation, evaluate(left, budget), evaluate(right, budget))
        case Builder(element, condition):
            return _builder(element, evaluate(condition, budget))
        case Matrix(rows, is_determinant):
            if len({len(row) for row in rows}) != 1:
                raise NotExact("a matrix with rows of different lengths")
            return MatrixOf(tuple(tuple(scalar_value(entry, budget) for entry in row) for row in rows), is_determinant)
        case Ratio(terms):
            return Proportion(tuple(scalar_value(term, budget) for term in terms))
        case InBase():
            return Numeral(numeral_value(node), node.base)
    signs = plus_minus_signs(node)
    if len(signs) > 1 and not any(sign.is_flipped for sign in signs):
        raise NotExact("several plus-minus signs, together or each for itself")
    if signs:
        return _both_signs(node, budget)
    return _single(node, budget, 1)


def _single(node: Node, budget: Budget, sign: int) -> Value:
    if isinstance(node, Quantity):
        return Measured(scalar_value(node.value, budget, sign), node.unit)
    return bound_value(node, budget, sign)


def _both_signs(node: Node, budget: Budget) -> Value:
    plus, minus = _single(node, budget, 1), _single(node, budget, -1)
    return plus if plus == minus else Collection((plus, minus), is_set=False)


def _listing(values: list[Value], separator: str) -> Value:
    real_sets = [value for value in values if isinstance(value, RealSet)]
    if len(real_sets) == len(values):
        return _combined(real_sets, separator)
    assigned = [value for value in values if isinstance(value, Assigned)]
    if len(assigned) == len(values) and len({value.names for value in assigned}) == 1:
        return Assigned(assigned[0].names, _alternatives([value.value for value in assigned], separator), None)
    if assigned and len(assigned[0].names) == 1 and values[0] is assigned[0] and len(assigned) == 1:
        return Assigned(assigned[0].names, _flat([assigned[0].value, *values[1:]]), None)  # x = 1, 2
    return _alternatives(values, separator)


def _alternatives(values: list[Value], separator: str) -> Value:
    """`1/4 or 0.25` is one number; anything else is a bare list."""
    numbers = {scalar.as_rational(value) if isinstance(value, scalar.Scalar) else None for value in values}
    return values[0] if separator == "or" and len(numbers) == 1 and None not in numbers else _flat(values)


def _flat(values: list[Value]) -> Collection:
    r"""A bare list; the two values of a `\pm` in it are its own items."""
    items: list[Value] = []
    for value in values:
        if isinstance(value, Collection) and not value.is_set:
            items.extend(value.items)
        else:
            items.append(value)
    return Collection(tuple(items), is_set=False, has_gap=any(isinstance(item, Gap) for item in items))


def _combined(values: list[RealSet], separator: str) -> RealSet:
    if separator == "or":
        return sets.union(values)
    met = values[0]
    for value in values[1:]:
        met = sets.intersection(met, value)
    return sets.union(values) if separator == "," and not met.intervals else met


def _group(opening: str, items: tuple[Node, ...], closing: str, budget: Budget) -> Value:
    values = [evaluate(item, budget) for item in items]
    if opening == r"\{":
        flat = _flat(values)
        return Collection(flat.items, is_set=True, has_gap=flat.has_gap)
    if opening == "langle":
        opening, closing = "(", ")"
    doubled = [index for index, value in enumerate(values) if isinstance(value, Collection) and not value.is_set]
    if len(doubled) != 1 or len(values) == 1:
        return Sequence(tuple(values), opening, closing)
    index = doubled[0]  # plus-minus 3 in (+-3, 0): two tuples
    both = values[index]
    assert isinstance(both, Collection)
    tuples = [(*values[:index], item, *values[index + 1 :]) for item in both.items]
    return Collection(tuple(Sequence(items, opening, closing) for items in tuples), is_set=False)


def _builder(element: Node, condition: Value) -> Value:
    if not isinstance(condition, RealSet):
        raise NotExact("a set with a condition that is no inequality")
    names = names_of(element)
    if isinstance(element, Relation):  # x \in \mathbb{R}
        names = names_of(element.terms[0]) if element.signs == ("in",) and element.terms[1] == Name("reals") else None
    if names is None or condition.variable not in names:
        raise NotExact("a set of something else than the variable of its condition")
    return RealSet(condition.intervals)


def _set_operation(operation: str, left: Value, right: Value) -> Value:
    if operation == "difference" and isinstance(right, Collection) and isinstance(left, RealSet):
        points = [item for item in right.items if isinstance(item, scalar.Scalar)]
        if len(points) != len(right.items):
            raise NotExact("a difference of sets of other things than numbers")
        return left if not points else sets.intersection(left, sets.complement(points))
    if isinstance(left, Collection) and isinstance(right, Collection) and operation == "union":
        return Collection((*left.items, *right.items), is_set=True)
    one, other = _as_real_set(left), _as_real_set(right)
    if operation == "union":
        return sets.union([one, other])
    if operation == "intersection":
        return sets.intersection(one, other)
    raise NotExact("a difference of intervals")


def _as_real_set(value: Value) -> RealSet:
    if isinstance(value, RealSet):
        return value
    if isinstance(value, Sequence):
        interval = as_interval(value)
        if interval is not None:
            return interval
    if isinstance(value, Collection) and all(isinstance(item, scalar.Scalar) for item in value.items):
        return RealSet(tuple(sets.point(item) for item in value.items if isinstance(item, scalar.Scalar)))
    raise NotExact("a set operation on something else than sets of numbers")
