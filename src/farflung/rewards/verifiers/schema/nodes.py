"""A schema as a graph of checks, and the budget that one document is checked within."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias


class UnusableSchema(ValueError):
    """No document can be graded against the schema."""


class OverBudget(Exception):
    """A document takes more steps than it may."""


class Work:
    """Steps that are left for one document; a step is about half a microsecond."""

    def __init__(self, num_steps: int) -> None:
        self._left = num_steps

    def spend(self, num_steps: int) -> None:
        """Raises `OverBudget`."""
        self._left -= num_steps
        if self._left < 0:
            raise OverBudget

    def spend_on(self, value: Any) -> None:
        """For looking at all of a value. Raises `OverBudget`."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            self.spend(4)
            if isinstance(each, str):
                self.spend(len(each) // 64)
            elif isinstance(each, list):
                waiting += each
            elif isinstance(each, dict):
                waiting += each.values()


Check: TypeAlias = Callable[[Any, Work], bool]
"""(part of a document, budget) -> whether the keyword is content with it."""


class Node:
    """One schema: its checks in order, and the schemas among them that look at the same part of a document."""

    __slots__ = ("checks", "in_place")

    def __init__(self) -> None:
        self.checks: list[tuple[str, Check]] = []
        self.in_place: list[Node] = []

    def holds(self, instance: Any, work: Work) -> bool:
        """Raises `OverBudget`, and `RecursionError` for a document that is nested too deeply for its schema."""
        work.spend(1)
        for _, check in self.checks:
            work.spend(1)
            if not check(instance, work):
                return False
        return True

    def broken(self, instance: Any, work: Work) -> str | None:
        """The first keyword that is not content; None if all are. Raises as `holds`."""
        return next((keyword for keyword, check in self.checks if not check(instance, work)), None)


def longest_path(nodes: Sequence[Node]) -> int:
    """Schemas in a row that look at the same part of a document. Raises `UnusableSchema` if they lead in a circle."""
    depths: dict[int, int] = {}
    for start in nodes:
        path: list[tuple[Node, Iterator[Node]]] = [] if id(start) in depths else [(start, iter(start.in_place))]
        on_path = {id(node) for node, _ in path}
        while path:
            node, rest = path[-1]
            following = next((each for each in rest if id(each) not in depths), None)
            if following is None:
                depths[id(node)] = 1 + max((depths[id(each)] for each in node.in_place), default=0)
                on_path.discard(id(node))
                path.pop()
            elif id(following) in on_path:
                raise UnusableSchema("the schema refers to itself without end")
            else:
                on_path.add(id(following))
                path.append((following, iter(following.in_place)))
    return max(depths.values())
