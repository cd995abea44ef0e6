"""Names that a package may not take: those of farflung, and whatever a reader would take for them.

    sort_digits, Sort-Digits, s0rt-digits, sort-digits-  ->  the same skeleton as sort-digits

This module knows no packages; the caller says which names are taken.
"""

from collections.abc import Iterable

from farflung.errors import UserError

RESERVED = ("farflung", "mixture", "reasoning-gym", "verifiers", "all")
_LOOKALIKES = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "3": "e", "8": "b"})
_SEPARATORS = str.maketrans("", "", "-_.: ")


def require_free(names: Iterable[str], taken: Iterable[str]) -> None:
    """Raises `UserError` for the first name that is taken, reserved, or looks like such a one."""
    skeletons = {skeleton(name): name for name in (*RESERVED, *taken)}
    for name in names:
        other = skeletons.get(skeleton(name))
        if other is not None:
            what = "is taken" if other == name else f"would be taken for {other}"
            raise UserError(f'the name "{name}" {what}: choose another, for example {name}-of-mine')


def skeleton(name: str) -> str:
    """The same for names that look alike."""
    return name.lower().translate(_SEPARATORS).translate(_LOOKALIKES)
