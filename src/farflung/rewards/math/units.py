"""Names of units in one spelling; a unit is a product of powers of named units.

    centimeters -> cm    square feet -> ft^2    km/h, km per hour -> h^-1*km    dollars -> $    apples -> apple

Only spelling is unified here and nothing is converted, so a unit that this table does not know is compared as a word.
"""

from farflung.rewards.math.word_lists import NO_UNITS

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


def is_unit_word(word: str) -> bool:
    """Whether `word` is a spelling of a unit in the table."""
    return canonical_word(word) in _SPELLINGS


def canonical_word(word: str) -> str:
    """One spelling of a unit word: aliases unified, plural dropped."""
    for form in (word, word.lower()):
        if form in _CANONICAL:
            return _CANONICAL[form]
        if form.endswith("s") and form[:-1] in _CANONICAL:
            return _CANONICAL[form[:-1]]
    lowered = word.lower()
    return lowered[:-1] if lowered.endswith("s") and len(lowered) > 3 else lowered


def may_name_a_unit(word: str) -> bool:
    """Whether `word` after a number can be read as its unit."""
    return word.lower() not in NO_UNITS and word.lower() not in MULTIPLIERS


def canonical_unit(powers: dict[str, int]) -> str:
    """One spelling of a product of unit words, each with its power."""
    return "*".join(word if count == 1 else f"{word}^{count}" for word, count in sorted(powers.items()) if count)
