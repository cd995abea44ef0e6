r"""Grammar of matrices: `\begin{pmatrix} a & b \\ c & d \end{pmatrix}` -> tree. The grammar of an entry is given."""

from collections.abc import Callable

from farflung.rewards.math.cursor import Cursor
from farflung.rewards.math.limits import MAX_ITEMS, CutShort, NotExact, OverLimits
from farflung.rewards.math.syntax import Matrix, Node
from farflung.rewards.math.tokens import TokenKind

_MATRICES = {"matrix": "[", "pmatrix": "[", "bmatrix": "[", "array": "[", "smallmatrix": "[", "vmatrix": "|"}


def parse_matrix(cursor: Cursor, parse_entry: Callable[[Cursor], Node]) -> Matrix:
    r"""The matrix after `\begin`; raises NotExact for another environment."""
    kind = _environment(cursor)
    if kind not in _MATRICES:
        raise NotExact("an unknown environment")
    if kind == "array":
        _environment(cursor)
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    while True:
        row.append(parse_entry(cursor))
        if len(row) * (len(rows) + 1) > MAX_ITEMS:
            raise OverLimits("too many items")
        if cursor.take("&"):
            continue
        rows.append(tuple(row))
        row = []
        while cursor.take("hline"):
            pass
        if cursor.take("\\\\") and not cursor.at("end"):
            continue
        cursor.expect("end")
        if _environment(cursor) != kind:
            raise NotExact("an environment that closes another")
        return Matrix(tuple(rows), is_determinant=_MATRICES[kind] == "|")


def _environment(cursor: Cursor) -> str:
    r"""The word in the braces after `\begin` or `\end`."""
    cursor.expect("{")
    name = ""
    while not cursor.take("}"):
        token = cursor.advance()
        if token.kind is TokenKind.END:
            raise CutShort("the text ends too early")
        name += token.text
    return name
