"""Whether two values are equal: True, False, or None where these rules cannot tell.

Kinds that have a common meaning are brought together first (an inequality and an interval, a list and a set, a named
value and a bare one); then each kind has its rule. A comparison is symmetric in its values except for the relative
tolerance, which is a share of the reference.
"""

from collections import Counter
from fractions import Fraction

from farflung.rewards.math import polynomial, scalar, sets
from farflung.rewards.math.different_kinds import compare_kinds, domain_of, has_domain, has_open_signs
from farflung.rewards.math.letters import may_share_letters, renamed
from farflung.rewards.math.limits import Budget
from farflung.rewards.math.matching import Comparison, all_of, compare_as_lists, compare_as_sets, compare_in_order
from farflung.rewards.math.policy import MathPolicy, OrderPolicy
from farflung.rewards.math.quantities import compare_measured, compare_scalars
from farflung.rewards.math.relations import as_interval
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.text_answers import same_text
from farflung.rewards.math.values import (
    Assigned,
    Bound,
    Collection,
    Congruence,
    Equation,
    Gap,
    Infinite,
    Interval,
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


def compare(gold: Value, answer: Value, policy: MathPolicy, budget: Budget) -> bool | None:
    """Whether `answer` is equal to `gold`; raises OverLimits."""
    budget.spend()
    if isinstance(gold, Assigned) or isinstance(answer, Assigned):
        return _compare_assigned(gold, answer, policy, budget)
    gold, answer = _unwrapped(gold), _unwrapped(answer)
    match gold, answer:
        case (Scalar(), Scalar()):
            verdict = compare_scalars(gold, answer, policy, budget)
            return None if verdict is False and may_share_letters(gold, answer, budget) else verdict
        case (Scalar() | Measured(), Scalar() | Measured()):
            return compare_measured(gold, answer, policy, budget)
        case (Text(), Text()):
            return same_text(gold.words, answer.words, with_case=policy.text_case)
        case (Collection(), Collection()):
            return _compare_collections(gold, answer, policy, budget)
        case (Sequence(), Sequence()):
            return _compare_sequences(gold, answer, policy, budget)
        case (RealSet(), RealSet() | Sequence() | Collection()) | (Sequence() | Collection(), RealSet()):
            return _compare_real_sets(gold, answer, policy, budget)
        case (MatrixOf(), MatrixOf()):
            return _compare_matrices(gold, answer, policy, budget)
        case (Equation(), Equation()):
            return _compare_equations(gold.difference, answer.difference, budget)
        case (Proportion(), Proportion()):
            return _compare_proportions(gold.terms, answer.terms, budget)
        case (Congruence(), Congruence()):
            return gold == answer if gold.name == answer.name else None
        case (Infinite(), Infinite()) | (NumberSet(), NumberSet()) | (Gap(), Gap()):
            return gold == answer
        case (Numeral(), Numeral()):
            return _compare_numerals(gold, answer)
    return compare_kinds(gold, answer, _items_by(policy, budget))


def _items_by(policy: MathPolicy, budget: Budget) -> Comparison[Value]:
    return lambda gold, answer: compare(gold, answer, policy, budget)


def _unwrapped(value: Value) -> Value:
    """A bare list of one item is the item."""
    if isinstance(value, Collection) and not value.is_set and len(value.items) == 1:
        return value.items[0]
    return value


def _are_named(values: Collection) -> bool:
    """`x = 1, y = 2`: which value is whose is part of it."""
    return all(isinstance(item, Assigned) for item in values.items)


def _compare_assigned(gold: Value, answer: Value, policy: MathPolicy, budget: Budget) -> bool | None:
    if isinstance(gold, Assigned) and isinstance(answer, Assigned):
        if gold.names == answer.names:
            return compare(gold.value, answer.value, policy, budget)
        if gold.difference is not None and answer.difference is not None:
            verdict = _compare_equations(gold.difference, answer.difference, budget)
            share = verdict is False and may_share_letters(gold.difference, answer.difference, budget)
            return None if share else verdict
        return None
    named, bare = (gold, answer) if isinstance(gold, Assigned) else (answer, gold)
    assert isinstance(named, Assigned)
    if isinstance(bare, Equation):
        return None if named.difference is None else _compare_equations(named.difference, bare.difference, budget)
    if isinstance(bare, RealSet) and bare.variable is not None:
        return False if isinstance(named.value, Scalar) else None  # x = 3 and x > 3
    if not policy.drop_left_side:
        return False
    if list(named.names) != sorted(named.names):
        return None  # (y, x) = (1, 2) and (1, 2)
    if isinstance(gold, Assigned):
        return compare(gold.value, answer, policy, budget)
    assert isinstance(answer, Assigned)
    return compare(gold, answer.value, policy, budget)


def _compare_collections(gold: Collection, answer: Collection, policy: MathPolicy, budget: Budget) -> bool | None:
    if gold.has_gap or answer.has_gap:
        return _compare_with_gaps(gold, answer, policy, budget)
    if has_domain(gold) or has_domain(answer):
        return _compare_with_domains(gold, answer, policy, budget)
    if policy.bare_lists is OrderPolicy.FIXED and not (gold.is_set and answer.is_set):
        if gold.is_set != answer.is_set:
            return False
        return compare_in_order(gold.items, answer.items, _items_by(policy, budget))
    if _are_named(gold) != _are_named(answer) and len(gold.items) == len(answer.items) > 1:
        in_order = compare_in_order(gold.items, answer.items, _items_by(policy, budget))
        return None if in_order is False or gold.is_set or answer.is_set else in_order  # x = 1, y = 2 and 2, 1
    as_set = gold.is_set or answer.is_set
    if not (policy.absolute_tolerance or policy.relative_tolerance or policy.significant_figures):
        gold_numbers, answer_numbers = _rational_items(gold), _rational_items(answer)
        if gold_numbers is not None and answer_numbers is not None:
            if as_set:
                return set(gold_numbers) == set(answer_numbers)
            return gold_numbers == answer_numbers
    rule = compare_as_sets if as_set else compare_as_lists
    return rule(gold.items, answer.items, _items_by(policy, budget))


def _rational_items(value: Collection) -> Counter[polynomial.Rational] | None:
    counts: Counter[polynomial.Rational] = Counter()
    for item in value.items:
        number = scalar.as_rational(item) if isinstance(item, Scalar) else None
        if number is None:
            return None
        counts[number] += 1
    return counts


def _compare_with_gaps(gold: Collection, answer: Collection, policy: MathPolicy, budget: Budget) -> bool | None:
    """Lists with an ellipsis are equal as written or not known to be; other ends, or another first step, differ."""
    if gold.has_gap != answer.has_gap:
        return False
    if compare_in_order(gold.items, answer.items, _items_by(policy, budget)):
        return True
    for index in (0, -1):
        if compare(gold.items[index], answer.items[index], policy, budget) is False:
            return False
    return None


def _compare_with_domains(gold: Collection, answer: Collection, policy: MathPolicy, budget: Budget) -> bool | None:
    """`k pi, k in Z`: the letter is free to choose. Whether other terms give the same numbers is not known here."""
    domains = [[domain for item in side.items if (domain := domain_of(item)) is not None] for side in (gold, answer)]
    if [len(side) for side in domains] != [1, 1] or domains[0][0][1] != domains[1][0][1]:
        return None
    old, new = domains[1][0][0], domains[0][0][0]
    ours, theirs = ([item for item in side.items if domain_of(item) is None] for side in (gold, answer))
    if old != new:
        if any(isinstance(item, Scalar) and new in scalar.variables(item) for item in theirs):
            return None
        theirs = [renamed(item, old, new, budget) if isinstance(item, Scalar) else item for item in theirs]
    return compare_as_lists(ours, theirs, _items_by(policy, budget)) or None


def _compare_sequences(gold: Sequence, answer: Sequence, policy: MathPolicy, budget: Budget) -> bool | None:
    if (gold.opening, gold.closing) != (answer.opening, answer.closing):
        return False
    verdict = compare_in_order(gold.items, answer.items, _items_by(policy, budget))
    return None if verdict is False and has_open_signs(gold) and has_open_signs(answer) else verdict


def _compare_real_sets(gold: Value, answer: Value, policy: MathPolicy, budget: Budget) -> bool | None:
    one, other = _as_real_set(gold), _as_real_set(answer)
    if one is None or other is None:
        return False
    if not policy.intervals_as_inequalities and (one.variable is None) != (other.variable is None):
        return False
    verdict = _compare_intervals(one.intervals, other.intervals, policy, budget)
    has_other_name = None not in (one.variable, other.variable) and one.variable != other.variable
    return None if verdict and has_other_name else verdict


def _as_real_set(value: Value) -> RealSet | None:
    if isinstance(value, RealSet):
        return value
    if isinstance(value, Sequence):
        return as_interval(value)
    if isinstance(value, Collection) and all(isinstance(item, Scalar) for item in value.items) and value.is_set:
        return RealSet(sets.canonical(sets.point(item) for item in value.items if isinstance(item, Scalar)))
    return None


def _compare_intervals(
    gold: tuple[Interval, ...], answer: tuple[Interval, ...], policy: MathPolicy, budget: Budget
) -> bool | None:
    is_canonical = all(sets.is_rational(part) for part in (*gold, *answer))
    if len(gold) != len(answer):
        return False if is_canonical or {len(gold), len(answer)} == {0, 1} else None
    verdict = compare_as_lists(gold, answer, lambda one, other: _compare_interval(one, other, policy, budget))
    return verdict if is_canonical or len(gold) == 1 else verdict or None


def _compare_interval(gold: Interval, answer: Interval, policy: MathPolicy, budget: Budget) -> bool | None:
    if (gold.is_low_closed, gold.is_high_closed) != (answer.is_low_closed, answer.is_high_closed):
        return False
    return all_of(
        [
            _compare_ends(gold.low, answer.low, policy, budget),
            _compare_ends(gold.high, answer.high, policy, budget),
        ]
    )


def _compare_ends(gold: Bound, answer: Bound, policy: MathPolicy, budget: Budget) -> bool | None:
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        return compare_scalars(gold, answer, policy, budget)
    return gold == answer


def _compare_matrices(gold: MatrixOf, answer: MatrixOf, policy: MathPolicy, budget: Budget) -> bool | None:
    if gold.is_determinant != answer.is_determinant or len(gold.rows) != len(answer.rows):
        return False
    if len(gold.rows[0]) != len(answer.rows[0]):
        return False
    return all_of(
        [
            compare_scalars(one, other, policy, budget)
            for left, right in zip(gold.rows, answer.rows, strict=True)
            for one, other in zip(left, right, strict=True)
        ]
    )


def _compare_equations(gold: Scalar, answer: Scalar, budget: Budget) -> bool | None:
    """Equations with proportional sides are equal; linear ones that are not proportional differ."""
    one, other = gold.numerator, answer.numerator
    if not one or not other:
        return True if one == other else None
    if one.keys() == other.keys():
        monomial = next(iter(one))
        scaled = polynomial.scale(other, Fraction(one[monomial]) / other[monomial], budget)
        if scaled == one and gold.denominator == answer.denominator:
            return True
    return False if _is_linear(gold) and _is_linear(answer) else None


def _is_linear(value: Scalar) -> bool:
    return (
        value.denominator == polynomial.ONE
        and all(
            len(monomial) == 0 or (len(monomial) == 1 and all(count == 1 for _, count in monomial))
            for monomial in value.numerator
        )
        and all(atom.kind is polynomial.Kind.VARIABLE for atom in polynomial.atoms(value.numerator))
    )


def _compare_numerals(gold: Numeral, answer: Numeral) -> bool | None:
    """Equal values in different bases are the same number, but perhaps not the conversion that was asked for."""
    if gold.value != answer.value:
        return False
    return True if gold.base == answer.base else None


def _compare_proportions(gold: tuple[Scalar, ...], answer: tuple[Scalar, ...], budget: Budget) -> bool | None:
    """a : b = c : d where a*d = b*c."""
    if len(gold) != len(answer):
        return False
    for one, other in zip(gold[1:], answer[1:], strict=True):
        left = scalar.multiply(gold[0], other, budget)
        right = scalar.multiply(answer[0], one, budget)
        difference = scalar.subtract(left, right, budget)
        if not scalar.is_zero(difference):
            return False if scalar.is_proven(difference) else None
    return None if gold != answer and (_may_be_clock(gold) or _may_be_clock(answer)) else True


def _may_be_clock(terms: tuple[Scalar, ...]) -> bool:
    """`10:30` may be a time of day, which equals no other."""
    numbers = [scalar.as_integer(term) for term in terms]
    hours, minutes = numbers[0], numbers[-1]
    return len(terms) == 2 and hours is not None and minutes is not None and 0 <= hours <= 24 and 10 <= minutes < 60
