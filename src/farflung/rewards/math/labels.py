r"""Names that are more than a letter: `x_{10}`, `\vec{v}`, `\overline{AB}`; and numerals with a base, `1011_2`."""

from farflung.rewards.math.cursor import Cursor
from farflung.rewards.math.limits import NotExact
from farflung.rewards.math.syntax import InBase, Name, Node, Number, Product
from farflung.rewards.math.tokens import TokenKind


def parse_subscript(cursor: Cursor, base: Node) -> Node:
    """`base` with the label at the cursor, which stands after the `_`."""
    token = cursor.peek()
    if cursor.take("{"):
        label = ""
        while not cursor.at("}"):
            token = cursor.advance()
            if token.kind in (TokenKind.END, TokenKind.COMMAND) or token.text in ("{", "^", "_"):
                raise NotExact("a subscript that is no label")
            label += token.text
        cursor.advance()
    elif token.kind in (TokenKind.NUMBER, TokenKind.NAME, TokenKind.WORD):
        label = cursor.advance().text
    else:
        raise NotExact("a subscript that is no label")
    if isinstance(base, Name):
        return Name(f"{base.text}_{label}")
    if isinstance(base, Number) and isinstance(base.value, int) and label.isdigit() and 2 <= int(label[:3]) <= 36:
        return InBase(str(base.value), int(label[:3]))
    raise NotExact("a subscript of an expression")


def label_of(node: Node) -> str:
    """The letters of a tree that is a name under an accent; raises NotExact for another."""
    if isinstance(node, Name):
        return node.text
    if isinstance(node, Product) and all(isinstance(factor, Name) for factor in node.factors):
        return " ".join(factor.text for factor in node.factors if isinstance(factor, Name))
    raise NotExact("an accent over an expression")


def canonical_label(mark: str, label: str) -> str:
    """One order of letters that name the same thing: segment AB = BA, angle ABC = CBA, triangle ABC = BCA."""
    if not (label.isalpha() and label.isupper()):
        return label
    if (mark == "overline" and len(label) == 2) or (mark == "triangle" and len(label) == 3):
        return "".join(sorted(label))
    return min(label, label[::-1]) if mark == "angle" and len(label) == 3 else label
