"""Text out of tokens: whatever the pieces, they add up, and a stop string never shows."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from farflung.serving.text import TextStream


def decode_bytes(ids: Sequence[int]) -> str:
    """A byte-level vocabulary."""
    return bytes(ids).decode(errors="replace")


def stream(text: str, stop: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    made = TextStream(decode_bytes, stop)
    pieces = []
    for token in text.encode():
        pieces.append(made.add(token))
        if made.is_stopped:
            return pieces, made
    return [*pieces, made.end()], made


@given(st.text(max_size=30))
def test_pieces_spell_the_text_and_never_half_a_character(text: str) -> None:
    pieces, _ = stream(text)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_text_ends_at_the_first_stop_string(text: str, stops: list[str]) -> None:
    pieces, made = stream(text, stops)
    # The first stop string to be complete wins; of those, the one that begins first.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert ("".join(pieces), made.is_stopped) == (text, False)
        return
    seen = text[: min(ends)]
    assert made.is_stopped
    assert "".join(pieces) == seen[: min(seen.find(stop) for stop in stops if stop in seen)]


def test_what_was_held_back_comes_at_the_end() -> None:
    pieces, _ = stream("ab<", ["<stop>"])
    assert pieces == ["a", "b", "", "<"]


def test_broken_bytes_at_the_end_are_shown_as_such() -> None:
    made = TextStream(decode_bytes)
    assert [made.add(0x61), made.add(0xE4)] == ["a", ""]
    assert made.end() == "\ufffd"
