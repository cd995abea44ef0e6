"""Pairs whose truth is known by construction: an equal form of the gold, and a near miss of it.

Each family draws from its own seeded generator, so that the same pairs come out on any machine. None of them asks a
grader or a computer algebra system; right and near-miss forms follow from whole-number arithmetic in this file.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb, factorial

Pair = tuple[str, str, int]
"""(gold, answer, label)"""


def _integers(draw: random.Random) -> Iterator[Pair]:
    for _ in range(14):
        value = draw.randint(1_000, 99_999_999)
        gold = str(value)
        comma = f"{value:,}"
        yield gold, draw.choice([comma, comma.replace(",", r"\,"), comma.replace(",", "{,}"), f"{gold}.0"]), 1
        swapped = gold[0] + gold[2] + gold[1] + gold[3:]
        yield gold, swapped if swapped != gold else str(value + 10), 0
        yield comma, str(value + draw.choice([-1, 1])), 0


def _big_integers(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        value = draw.randrange(10**30, 10**40)
        yield str(value), f"{value:,}", 1
        yield str(value), str(value + draw.choice([-1, 1, 10**12])), 0
        base, exponent = draw.randint(2, 9), draw.randint(40, 90)
        power = base**exponent
        yield str(power), f"{base}^{{{exponent}}}", 1
        yield str(power + 1), f"{base}^{{{exponent}}}", 0


def _fractions(draw: random.Random) -> Iterator[Pair]:
    for _ in range(14):
        top, bottom, times = draw.randint(1, 60), draw.randint(2, 60), draw.randint(2, 12)
        value = Fraction(top, bottom)
        gold = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        yield gold, rf"\frac{{{top * times}}}{{{bottom * times}}}", 1
        yield gold, f"{top * times}/{bottom * times}", 1
        near = value + Fraction(draw.choice([-1, 1]), value.denominator * draw.randint(1, 50))
        yield gold, rf"\frac{{{near.numerator}}}{{{near.denominator}}}", 0
        yield gold, rf"\dfrac{{{bottom}}}{{{top}}}" if top != bottom else "2", 0


def _decimals(draw: random.Random) -> Iterator[Pair]:
    for _ in range(12):
        places = draw.randint(2, 6)
        whole, part = draw.randint(0, 500), draw.randint(1, 10**places - 1)
        gold = f"{whole}.{part:0{places}d}"
        value = Fraction(gold)
        yield gold, gold + "0" * draw.randint(1, 3), 1
        yield gold, rf"\frac{{{value.numerator}}}{{{value.denominator}}}", 1
        yield gold, gold + "0" * draw.randint(2, 6) + "1", 0
        yield gold, f"{whole}.{part + 1:0{places}d}" if part + 1 < 10**places else str(whole), 0


def _mixed(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        bottom = draw.randint(3, 12)
        whole, top = draw.randint(1, 20), draw.randint(1, bottom - 1)
        gold = rf"{whole}\frac{{{top}}}{{{bottom}}}"
        yield gold, rf"\frac{{{whole * bottom + top}}}{{{bottom}}}", 1
        yield gold, rf"\frac{{{whole * top}}}{{{bottom}}}" if whole * top != whole * bottom + top else "0", 0


def _percents(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        share = draw.randint(1, 199)
        yield rf"{share}\%", f"{share}.0%", 1
        yield rf"{share}\%", rf"\frac{{{share}}}{{100}}", 1
        yield str(share), rf"{share}\%", 0
        yield rf"{share}\%", rf"{share + draw.choice([1, 100])}\%", 0


def _sets(draw: random.Random) -> Iterator[Pair]:
    for _ in range(10):
        members = draw.sample(range(-30, 60), draw.randint(3, 6))
        other = draw.sample(members, len(members))
        gold = rf"\{{{', '.join(map(str, members))}\}}"
        yield gold, rf"\left\{{{', '.join(map(str, other))}\right\}}", 1
        yield gold, rf"\{{{', '.join(map(str, other[1:]))}\}}", 0
        yield gold, rf"\{{{', '.join(map(str, [*other[:-1], 77]))}\}}", 0
        yield ", ".join(map(str, members)), str(draw.choice(members)), 0


def _tuples(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        items = draw.sample(range(-30, 60), draw.randint(2, 4))
        gold = f"({','.join(map(str, items))})"
        halves = [rf"\frac{{{2 * item}}}{{2}}" for item in items]
        yield gold, rf"\left({', '.join(halves)}\right)", 1
        yield gold, f"({', '.join(map(str, reversed(items)))})", 0
        yield gold, f"({', '.join(map(str, [*items[:-1], items[-1] + 1]))})", 0


def _intervals(draw: random.Random) -> Iterator[Pair]:
    left_signs, right_signs = {"(": "<", "[": r"\le"}, {")": "<", "]": r"\le"}
    for _ in range(12):
        low = draw.randint(-40, 20)
        high = low + draw.randint(2, 30)
        left, right = draw.choice("(["), draw.choice(")]")
        gold = f"{left}{low}, {high}{right}"
        yield gold, rf"{low} {left_signs[left]} x {right_signs[right]} {high}", 1
        yield gold, rf"\left{left}{low},{high}\right{right}", 1
        flipped = "[" if left == "(" else "("
        yield gold, f"{flipped}{low}, {high}{right}", 0
        yield gold, rf"{low} {left_signs[flipped]} x {right_signs[right]} {high}", 0
        yield gold, f"{left}{low}, {high + 1}{right}", 0


def _inequalities(draw: random.Random) -> Iterator[Pair]:
    mirrored = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
    strictness = {"<": r"\le", ">": r"\ge", r"\le": "<", r"\ge": ">"}
    for _ in range(8):
        sign, bound, name = draw.choice(list(mirrored)), draw.randint(-50, 50), draw.choice("xyat")
        gold = f"{name} {sign} {bound}"
        yield gold, f"{bound} {mirrored[sign]} {name}", 1
        yield gold, f"{name} {strictness[sign]} {bound}", 0
        yield gold, f"{name} {mirrored[sign]} {bound}", 0


def _plus_minus(draw: random.Random) -> Iterator[Pair]:
    for _ in range(6):
        middle, step = draw.randint(1, 9), draw.choice([2, 3, 5, 6, 7, 10])
        gold = rf"{middle}\pm\sqrt{{{step}}}"
        yield gold, rf"{middle}-\sqrt{{{step}}}, {middle}+\sqrt{{{step}}}", 1
        yield gold, rf"{middle}+\sqrt{{{step}}}", 0
        yield gold, rf"{middle + 1}\pm\sqrt{{{step}}}", 0


def _matrices(draw: random.Random) -> Iterator[Pair]:
    def written(rows: list[list[int]], kind: str) -> str:
        lines = r" \\ ".join(" & ".join(map(str, row)) for row in rows)
        return rf"\begin{{{kind}}}{lines}\end{{{kind}}}"

    for _ in range(6):
        width = draw.randint(2, 3)
        rows = [[draw.randint(-9, 9) for _ in range(width)] for _ in range(2)]
        gold = written(rows, "pmatrix")
        yield gold, written(rows, "bmatrix"), 1
        changed = [row[:] for row in rows]
        changed[draw.randrange(2)][draw.randrange(width)] += 1
        yield gold, written(changed, "pmatrix"), 0
        yield gold, written([[*rows[0], *rows[1]]], "pmatrix"), 0


def _surds(draw: random.Random) -> Iterator[Pair]:
    for _ in range(10):
        factor, root = draw.randint(2, 12), draw.choice([2, 3, 5, 6, 7, 10, 11, 13])
        gold = rf"{factor}\sqrt{{{root}}}"
        yield gold, rf"\sqrt{{{factor**2 * root}}}", 1
        yield gold, rf"\sqrt{{{factor**2 * root + 1}}}", 0
        yield gold, rf"\frac{{{factor * root}}}{{\sqrt{{{root}}}}}", 1
        whole = draw.randint(1, 9)
        squared = rf"{whole**2 + factor**2 * root}+{2 * whole * factor}\sqrt{{{root}}}"
        yield squared, rf"({whole}+{factor}\sqrt{{{root}}})^2", 1
        yield squared, rf"({whole}-{factor}\sqrt{{{root}}})^2", 0


def _multiples_of_pi(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        value = Fraction(draw.randint(1, 40), draw.randint(2, 12))
        top, bottom = value.numerator, value.denominator
        gold = rf"\frac{{{top}\pi}}{{{bottom}}}"
        yield gold, rf"\frac{{{3 * top}}}{{{3 * bottom}}}\pi", 1
        yield gold, rf"\frac{{{top + bottom}\pi}}{{{bottom}}}", 0
        yield gold, f"{top / bottom * 3.141592653589793:.12g}", 0


def _polynomials(draw: random.Random) -> Iterator[Pair]:
    for _ in range(12):
        first, second = draw.randint(1, 12), draw.randint(1, 12)
        total, product = first + second, first * second
        gold = f"x^2+{total}x+{product}"
        yield gold, f"(x+{first})(x+{second})", 1
        yield gold, f"{product} + {total}x + x^{{2}}", 1
        yield gold, f"(x+{first})(x+{second + 1})", 0
        yield gold, f"x^2+{total}x-{product}", 0


def _near_powers(draw: random.Random) -> Iterator[Pair]:
    for _ in range(8):
        base, exponent = draw.randint(2, 12), draw.randint(60, 2_500)
        gold = rf"\frac{{1}}{{{base}^{{{exponent}}}}}"
        yield gold, rf"\frac{{1}}{{{base}^{{{exponent + 1}}}}}", 0
        yield gold, f"{base}^{{-{exponent}}}", 1
        yield f"1-{gold}", f"1+{gold}", 0
        yield f"{base}^{{{exponent}}}", f"{base}^{{{exponent}}}+1", 0


def _counts(draw: random.Random) -> Iterator[Pair]:
    for _ in range(6):
        top = draw.randint(6, 20)
        low = draw.randint(2, top - 2)
        yield str(comb(top, low)), rf"\binom{{{top}}}{{{low}}}", 1
        yield str(comb(top, low)), rf"\binom{{{top + 1}}}{{{low}}}", 0
        yield str(factorial(top)), f"{top}!", 1
        yield str(factorial(top) - 1), f"{top}!", 0


def _units(draw: random.Random) -> Iterator[Pair]:
    units = ["cm", "m", "km", "kg", "g", "hours", "minutes", "seconds", "inches", "feet", "mph", "litres"]
    for _ in range(10):
        size = draw.randint(2, 90)
        unit, other = draw.sample(units, 2)
        yield rf"{size}\text{{ {unit}}}", rf"{size}.0 \, \mathrm{{{unit}}}", 1
        yield str(size), rf"{size} \text{{ {unit}}}", 1
        yield rf"{size}\text{{ {unit}}}", rf"{size}\text{{ {other}}}", 0
        yield rf"{size}\text{{ {unit}}}", rf"{size + 1}\text{{ {unit}}}", 0


def _complex(draw: random.Random) -> Iterator[Pair]:
    for _ in range(5):
        a, b, c, d = (draw.randint(1, 9) for _ in range(4))
        real, imaginary = a * c + b * d, b * c - a * d
        gold = f"{real}{imaginary:+d}i"
        yield gold, f"({a}+{b}i)({c}-{d}i)", 1
        yield gold, f"({a}+{b}i)({c}-{d + 1}i)", 0
        yield gold, f"{imaginary:d}{real:+d}i" if real != imaginary else "i", 0


FAMILIES: dict[str, Callable[[random.Random], Iterator[Pair]]] = {
    "integer": _integers,
    "big_integer": _big_integers,
    "fraction": _fractions,
    "decimal": _decimals,
    "mixed": _mixed,
    "percent": _percents,
    "set": _sets,
    "tuple": _tuples,
    "interval": _intervals,
    "inequality": _inequalities,
    "pm": _plus_minus,
    "matrix": _matrices,
    "surd": _surds,
    "constant": _multiples_of_pi,
    "polynomial": _polynomials,
    "power": _near_powers,
    "factorial": _counts,
    "unit": _units,
    "complex": _complex,
}


def generated_pairs() -> Iterator[dict[str, str | int]]:
    """Every generated pair as a row of the files."""
    for kind, family in FAMILIES.items():
        for gold, answer, label in family(random.Random(f"math_pairs/{kind}")):
            yield {"gold": gold, "answer": answer, "label": label, "kind": kind, "provenance": "generated"}
