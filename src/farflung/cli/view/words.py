"""Numbers as a person reads them."""


def duration(seconds: float) -> str:
    """ "48 s", "3 min 05 s", "2 h 07 min"."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    return f"{total // 3600} h {total % 3600 // 60:02} min"


def count(number: float) -> str:
    """ "950", "12.4 k", "3.1 M"."""
    if number < 1000:
        return f"{number:.0f}"
    if number < 999_500:
        return f"{number / 1e3:.3g} k" if number < 99_950 else f"{number / 1e3:.0f} k"
    return f"{number / 1e6:.3g} M" if number < 999.5e6 else f"{number / 1e9:.3g} G"


def plain(text: str, max_chars: int = 200) -> str:
    """Words of others as text that no terminal obeys: what cannot be printed becomes "?"."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= max_chars else f"{shown[: max_chars - 3]}..."


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
