"""Forms that a reply can be asked to have, and how nearly a reply has one.

    closeness = 1 exactly when the reply has the form, else something in [0, 1) that grows towards it

A form has variants (a number of words, a closing phrase), so that one is not learned by heart. Every check is linear in
the length of the text and never raises. This module does not know what the reply is about.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")
OPENINGS = ("Answer:", "Well,", "Dear friend,", "In short:", "Listen:", "Note:")
CLOSINGS = ("Thank you.", "That is all.", "The end.", "Good luck!", "See you soon.", "Goodbye.")
WORDS = ("always", "because", "beautiful", "today", "water", "never", "world", "people")
KEYS = ("answer", "reply", "text", "result")
MAX_ITEM_WORDS = 3
MIN_DISTINCT_SHARE = 0.75
MIN_WORDS = 3
"""Of what is said inside a form that has no length of its own; with fewer the form is worth half."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """One way of writing a reply."""

    num_variants: int
    instruction: Callable[[int], str]
    """Variant -> the sentence that asks for it."""
    closeness: Callable[[int, str], float]
    """Variant, reply without blanks around it and not empty -> [0, 1]."""
    example: Callable[[int, str], str]
    """Variant, subject -> a reply that has the form and names the subject."""


def words_of(text: str) -> list[str]:
    """What stands between blanks and has a letter or digit in it."""
    return [word for word in text.split() if any(map(str.isalnum, word))]


def is_varied(text: str) -> bool:
    """Whether at least `MIN_DISTINCT_SHARE` of the words are different ones; what has no letter is not counted."""
    words = ["".join(filter(str.isalpha, word)).lower() for word in text.split()]
    spoken = [word for word in words if word]
    return len(set(spoken)) >= MIN_DISTINCT_SHARE * len(spoken)


def _nearness(count: int, wanted: int) -> float:
    return max(0.0, 1.0 - abs(count - wanted) / wanted)


def _substance(text: str) -> float:
    return 1.0 if len(words_of(text)) >= MIN_WORDS else 0.5


def _exact_words() -> Form:
    fillers = ("are", "things", "that", "we", "all", "know", "well")

    def example(variant: int, subject: str) -> str:
        return " ".join((subject.capitalize(), *fillers[: variant + 1])) + "."

    return Form(
        num_variants=5,  # two to six words
        instruction=lambda variant: f"Reply with exactly {NUMBERS[variant + 2]} words.",
        closeness=lambda variant, reply: _nearness(len(words_of(reply)), variant + 2),
        example=example,
    )


def _numbered_list() -> Form:
    def closeness(variant: int, reply: str) -> float:
        lines = [line.strip() for line in reply.splitlines() if line.strip()]
        items = [
            line.removeprefix(f"{number}.") for number, line in enumerate(lines, 1) if line.startswith(f"{number}.")
        ]
        is_clean = len(items) == len(lines) and all(1 <= len(words_of(item)) <= MAX_ITEM_WORDS for item in items)
        return _nearness(len(items), variant + 2) * (1.0 if is_clean else 0.5)

    def example(variant: int, subject: str) -> str:
        items = (subject.capitalize(), "Time", "Joy", "Work")[: variant + 2]
        return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))

    return Form(
        num_variants=3,  # two to four items
        instruction=lambda variant: f"Reply with a numbered list of exactly {NUMBERS[variant + 2]} short items.",
        closeness=closeness,
        example=example,
    )


def _json_object() -> Form:
    def closeness(variant: int, reply: str) -> float:
        try:
            value = json.loads(reply)
        except (ValueError, RecursionError):
            return 0.25 if reply.startswith("{") else 0.0
        if not isinstance(value, dict):
            return 0.25
        text = value.get(KEYS[variant])
        return _substance(text) if value.keys() == {KEYS[variant]} and isinstance(text, str) else 0.5

    return Form(
        num_variants=len(KEYS),
        instruction=lambda variant: f'Reply in JSON, as {{"{KEYS[variant]}": "..."}}.',
        closeness=closeness,
        example=lambda variant, subject: json.dumps({KEYS[variant]: f"I like {subject}."}),
    )


def _opening() -> Form:
    def closeness(variant: int, reply: str) -> float:
        opening = OPENINGS[variant]
        return _substance(reply[len(opening) :]) if reply.startswith(opening) else 0.0

    return Form(
        num_variants=len(OPENINGS),
        instruction=lambda variant: f'Begin your reply with "{OPENINGS[variant]}"',
        closeness=closeness,
        example=lambda variant, subject: f"{OPENINGS[variant]} I like {subject}.",
    )


def _closing() -> Form:
    def closeness(variant: int, reply: str) -> float:
        closing = CLOSINGS[variant]
        if reply.endswith(closing):
            return _substance(reply[: -len(closing)])
        return 0.25 if closing in reply else 0.0

    return Form(
        num_variants=len(CLOSINGS),
        instruction=lambda variant: f'Reply with one short sentence, then "{CLOSINGS[variant]}"',
        closeness=closeness,
        example=lambda variant, subject: f"I like {subject}. {CLOSINGS[variant]}",
    )


def _capitals() -> Form:
    def closeness(variant: int, reply: str) -> float:  # noqa: ARG001 - there is one variant
        letters = [letter for letter in reply if letter.isalpha()]
        return sum(map(str.isupper, letters)) / len(letters) * _substance(reply) if letters else 0.0

    return Form(
        num_variants=1,
        instruction=lambda variant: "Reply in capital letters only.",  # noqa: ARG005
        closeness=closeness,
        example=lambda variant, subject: f"I LIKE {subject.upper()}.",  # noqa: ARG005
    )


def _quoted() -> Form:
    def closeness(variant: int, reply: str) -> float:  # noqa: ARG001 - there is one variant
        opened, closed = reply.startswith('"'), reply.endswith('"')
        if opened and closed and '"' not in reply[1:-1]:
            return _substance(reply)
        return 0.25 * float(opened or closed)

    return Form(
        num_variants=1,
        instruction=lambda variant: "Put your whole reply in double quotes.",  # noqa: ARG005
        closeness=closeness,
        example=lambda variant, subject: f'"I like {subject}."',  # noqa: ARG005
    )


def _keyword() -> Form:
    def closeness(variant: int, reply: str) -> float:
        spoken = {word.strip(".,;:!?\"'()").lower() for word in words_of(reply)}
        return _substance(reply) if WORDS[variant] in spoken else 0.0

    return Form(
        num_variants=len(WORDS),
        instruction=lambda variant: f'Use the word "{WORDS[variant]}" in your reply.',
        closeness=closeness,
        example=lambda variant, subject: f"I like {subject}, {WORDS[variant]}.",
    )


FORMS: Mapping[str, Form] = {
    "words": _exact_words(),
    "list": _numbered_list(),
    "json": _json_object(),
    "opening": _opening(),
    "closing": _closing(),
    "capitals": _capitals(),
    "quotes": _quoted(),
    "keyword": _keyword(),
}
