r"""Regular expressions of a schema, in an engine without backtracking (pydantic's), with a bound of what they cost.

Such an engine takes at most time (states of the pattern) x (bytes of the text). States are counted from above: a
counted repetition repeats what it stands behind, so `(.{0,200}a){20}` has some forty thousand.
"""

import re
from dataclasses import dataclass

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from farflung.rewards.verifiers.schema.nodes import UnusableSchema

MAX_STATES = 20_000
_CLASS_STATES = 10
"""Of a class such as `.` or `[a-z]` or `\\w`; measured, it is that many times a letter."""
_WORK_PER_STEP = 250
"""States times bytes for one step of the budget; both take about half a microsecond."""

_EXTENDED = re.compile(r"\(\?[a-zA-Z]*x")
_REPEATED = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern; `read_pattern` makes it."""

    num_states: int
    _engine: SchemaValidator

    def cost(self, text: str) -> int:
        """Steps that looking for it in `text` may take."""
        return 1 + self.num_states * len(text.encode("utf-8", "surrogatepass")) // _WORK_PER_STEP

    def is_in(self, text: str) -> bool:
        """Whether it matches anywhere; false for text that is no Unicode."""
        try:
            self._engine.validate_python(text)
        except ValidationError:
            return False
        return True


def read_pattern(pattern: str) -> Pattern:
    """Raises `UnusableSchema` for what the engine does not know, and for patterns of too many states."""
    states = num_states(pattern)
    if states > MAX_STATES or _EXTENDED.search(pattern):
        raise UnusableSchema(f"pattern {pattern[:80]!r} is too large, or in extended notation")
    try:
        engine = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True))
    except SchemaError:
        raise UnusableSchema(f"pattern {pattern[:80]!r} needs an engine with backtracking, or is none") from None
    return Pattern(states, engine)


def num_states(pattern: str) -> int:
    """From above; for a text that is no pattern any number."""
    groups = [0]
    last = position = 0
    while position < len(pattern):
        sign = pattern[position]
        repeated = _REPEATED.match(pattern, position) if sign == "{" else None
        if repeated is not None:
            groups[-1] += last * (max(1, *(int(digits or 1) for digits in repeated.groups("1"))) - 1)
            last *= max(1, *(int(digits or 1) for digits in repeated.groups("1")))
            position = repeated.end()
            continue
        if sign == "(":
            groups.append(0)
            last = 0
        elif sign == ")":
            last = groups.pop() + 1 if len(groups) > 1 else 1
            groups[-1] += last
        else:
            last = _CLASS_STATES if sign in "\\[." else 1
            groups[-1] += last
            position = _class_end(pattern, position) if sign == "[" else position + (sign == "\\")
        position += 1
    return sum(groups)


def _class_end(pattern: str, start: int) -> int:
    """Place of the bracket that closes the class which opens at `start`, as near as it can be."""
    position = start + 1 + pattern.startswith("^", start + 1)
    position += pattern.startswith("]", position)
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position
