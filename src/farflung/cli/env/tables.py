"""Tables of the terminal, alike in all of `farflung env`. What packages say is shown as text, never as markup."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text


def plain(text: str) -> str:
    """Without control characters but line feeds and tabs: others wrote it, and a terminal obeys."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows under dim titles."""
    made = Table(box=None, padding=(0, 1), header_style="dim", show_header=any(titles))
    for title in titles:
        made.add_column(title, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made
