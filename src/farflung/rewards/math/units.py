"""Names of units in one spelling; a unit is a product of powers of named units.

    centimeters -> cm    square feet -> ft^2    km/h, km per hour -> h^-1*km    dollars -> $    apples -> apple

A unit of the table can be measured in base units, exactly; a word that the table does not know is compared as a word.
"""

from fractions import Fraction

from farflung.rewards.math.word_lists import NO_UNITS, PLURALS

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "m": ("meter", "metre"),
    "cm": ("centimeter", "centimetre"),
    "mm": ("millimeter", "millimetre"),
    "km": ("kilometer", "kilometre"),
    "in": ("inch", "inches"),
    "ft": ("foot", "feet"),
    "yd": ("yard",),
    "mi": ("mile",),
    "g": ("gram",),
    "kg": ("kilogram",),
    "mg": ("milligram",),
    "lb": ("pound", "lbs"),
    "oz": ("ounce",),
    "s": ("second", "sec"),
    "min": ("minute", "mins"),
    "h": ("hour", "hr", "hrs"),
    "day": (),
    "week": (),
    "month": (),
    "year": ("yr", "yrs"),
    "L": ("liter", "litre"),
    "mL": ("milliliter", "millilitre", "ml"),
    "N": ("newton",),
    "J": ("joule",),
    "W": ("watt",),
    "V": ("volt",),
    "K": ("kelvin",),
    "Hz": ("hertz",),
    "Pa": ("pascal",),
    "mol": ("mole",),
    "mph": (),
    "deg": ("degree", "degrees"),
    "rad": ("radian",),
    "$": ("dollar", "usd"),
    "cent": (),
    "euro": ("eur",),
    "pound sterling": ("gbp",),
    "%": ("percent",),
    "unit": (),
}
_LENGTH, _MASS, _TIME = {"m": 1}, {"g": 1}, {"s": 1}
_FORCE, _ENERGY = {"g": 1, "m": 1, "s": -2}, {"g": 1, "m": 2, "s": -2}
_IN_BASE_UNITS: dict[str, tuple[Fraction, dict[str, int]]] = {
    "m": (Fraction(1), _LENGTH),
    "cm": (Fraction(1, 100), _LENGTH),
    "mm": (Fraction(1, 1000), _LENGTH),
    "km": (Fraction(1000), _LENGTH),
    "in": (Fraction(254, 10_000), _LENGTH),  # international yard and pound, 1959
    "ft": (Fraction(3048, 10_000), _LENGTH),
    "yd": (Fraction(9144, 10_000), _LENGTH),
    "mi": (Fraction(1_609_344, 1000), _LENGTH),
    "g": (Fraction(1), _MASS),
    "kg": (Fraction(1000), _MASS),
    "mg": (Fraction(1, 1000), _MASS),
    "s": (Fraction(1), _TIME),
    "min": (Fraction(60), _TIME),
    "h": (Fraction(3600), _TIME),
    "day": (Fraction(86_400), _TIME),
    "week": (Fraction(604_800), _TIME),
    "month": (Fraction(1), {"month": 1}),
    "year": (Fraction(12), {"month": 1}),
    "L": (Fraction(1, 1000), {"m": 3}),
    "mL": (Fraction(1, 1_000_000), {"m": 3}),
    "mph": (Fraction(1_609_344, 3_600_000), {"m": 1, "s": -1}),
    "Hz": (Fraction(1), {"s": -1}),
    "N": (Fraction(1000), _FORCE),
    "J": (Fraction(1000), _ENERGY),
    "W": (Fraction(1000), {"g": 1, "m": 2, "s": -3}),
    "Pa": (Fraction(1000), {"g": 1, "m": -1, "s": -2}),
    "$": (Fraction(1), {"$": 1}),
    "cent": (Fraction(1, 100), {"$": 1}),
    "deg": (Fraction(1), {"deg": 1}),
    "euro": (Fraction(1), {"euro": 1}),
}
"""Each unit as a multiple of base units with their powers. A radian is in no rational proportion to a degree."""
_NOT_COMPARED = ({"month", "s"},)
"""Dimensions that measure the same without a fixed proportion: a month has 28 to 31 days."""

_CANONICAL = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in (unit, *spellings)}

MULTIPLIERS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}

MAX_UNIT_WORDS = 3
_LONGEST_SYMBOL = 2


def is_unit_word(word: str) -> bool:
    """Whether `word` is a spelling of a unit in the table."""
    return canonical_word(word) in _SPELLINGS


def canonical_word(word: str) -> str:
    """One spelling of a unit word: aliases unified, plural dropped.

    Symbols keep their case and have no plural: ms is no metre, Mm no millimetre, Ns no newton.
    """
    if word in _CANONICAL:
        return _CANONICAL[word]
    if len(word) <= _LONGEST_SYMBOL:
        return word
    lowered = word.lower()
    for form in (lowered, lowered.removesuffix("s")):
        if form in _CANONICAL:
            return _CANONICAL[form]
    return lowered.removesuffix("s")


def may_name_a_unit(word: str) -> bool:
    """Whether `word` after a number can be read as its unit: one of the table, or a noun in the plural.

    Of what else may follow a number too much changes it: doubled, millionths, incorrect.
    """
    lowered = word.lower()
    if {lowered, lowered.removesuffix("s")} & (NO_UNITS | MULTIPLIERS.keys()):
        return False
    return is_unit_word(word) or lowered in PLURALS or (lowered.endswith("s") and not lowered.endswith("ss"))


def canonical_unit(powers: dict[str, int]) -> str:
    """One spelling of a product of unit words, each with its power."""
    return "*".join(word if count == 1 else f"{word}^{count}" for word, count in sorted(powers.items()) if count)


def in_base_units(unit: str) -> tuple[Fraction, dict[str, int]] | None:
    """Factor and powers of base units of a canonical unit, None if a part of it is not in the table.

    "h^-1*km" -> (5/18, {"s": -1, "m": 1})
    """
    factor = Fraction(1)
    dimension: dict[str, int] = {}
    for part in unit.split("*"):
        name, _, exponent = part.partition("^")
        if name not in _IN_BASE_UNITS:
            return None
        size, powers = _IN_BASE_UNITS[name]
        count = int(exponent) if exponent else 1
        factor *= size**count
        for base, power in powers.items():
            dimension[base] = dimension.get(base, 0) + power * count
    return factor, {base: count for base, count in dimension.items() if count}


def may_measure_the_same(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two different dimensions may still be those of one quantity: months and seconds."""
    return any(names <= one.keys() | other.keys() for names in _NOT_COMPARED)
