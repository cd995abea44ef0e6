r"""What factors side by side mean, from their trees alone.

1\frac12        a mixed number        1(\frac12)    a product: the caller asks only where no bracket stands
A \times B      of vectors or sets, which has an order
\frac{dy}{dx}   a derivative, whose d is no letter
"""

from farflung.rewards.math.limits import NotExact
from farflung.rewards.math.syntax import Call, Mixed, Name, Node, Number, Power, Product, Quantity, Quotient


def has_order(node: Node) -> bool:
    r"""Whether it may be a vector or a set, of which `\times` is no product of numbers."""
    if isinstance(node, Call):
        return node.name == "cross"
    return isinstance(node, Name) and (" " in node.text or (len(node.text) == 1 and node.text.isupper()))


def left_depth(node: Node) -> int:
    """How many divisions from left to right its trunk is: 3 for `a/b/c/d`."""
    depth = 0
    while isinstance(node, Quotient):
        depth += 1
        node = node.numerator
    return depth


def mixed(whole: Node, fraction: Node) -> Node | None:
    r"""`1\frac12`: the fraction must be of two integers and proper, else it is a product. So too `1\frac12\%`."""
    if isinstance(fraction, Quantity):
        inner = mixed(whole, fraction.value)
        return None if inner is None else Quantity(inner, fraction.unit)
    if not (isinstance(whole, Number) and isinstance(whole.value, int) and isinstance(fraction, Quotient)):
        return None
    top, bottom = fraction.numerator, fraction.denominator
    if not (isinstance(top, Number) and isinstance(bottom, Number)):
        return None
    if not (isinstance(top.value, int) and isinstance(bottom.value, int) and 0 < top.value < bottom.value):
        return None
    return Mixed(whole, fraction)


def mixed_of_quotient(factors: list[Node], divisor: Node) -> Node | None:
    """`1 1/2`: two numbers side by side, then the slash."""
    if len(factors) == 2 and isinstance(factors[0], Number) and isinstance(factors[1], Number):
        number = mixed(factors[0], Quotient(factors[1], divisor))
        if number is None:
            raise NotExact("two numbers side by side")
        return number
    return None


def is_differential(node: Node) -> bool:
    """`d`, `dy`, `d^2 y`."""
    first = node.factors[0] if isinstance(node, Product) else node
    return first == Name("d") or (isinstance(first, Power) and first.base == Name("d"))
