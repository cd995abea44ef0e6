"""A session goes on from ids as drawn, also where their text would be encoded otherwise."""

import json

from farflung.engine.live import LiveToken
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.serving.recording import Session

TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
REWRITES = TEMPLATE.replace("m.content", "(m.content if loop.last else m.content[:1])")
ASK = ({"role": "user", "content": "go"},)


def merging(template: str = TEMPLATE) -> Tokenizer:
    """Encodes `ab` as one id, though a model may draw `a` and then `b`."""
    letters = "abcdefghijklmnopqrstuvwxyz<>"
    made = character_tokenizer(letters)
    table = json.loads(made.files["tokenizer.json"])
    added = [{**token, "id": len(letters) + 1 + place} for place, token in enumerate(table["added_tokens"])]
    vocab = {**{letter: place for place, letter in enumerate(letters)}, "ab": len(letters)}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b"]}
    table |= {"pre_tokenizer": None, "model": model, "added_tokens": added}
    files = {"tokenizer.json": json.dumps(table).encode(), "chat_template.jinja": template.encode()}
    return Tokenizer.from_files({**made.files, **files})


def drawn(*ids: int) -> list[LiveToken]:
    return [LiveToken(token=each, logprob=-0.5, top=(), stop_reason=None) for each in ids]


def said(text: str) -> tuple[dict[str, str], ...]:
    return (*ASK, {"role": "assistant", "content": text}, {"role": "user", "content": "ab"})


def test_ids_stay_as_drawn_where_their_text_is_encoded_otherwise() -> None:
    tokenizer = merging()
    session, a, b = Session(tokenizer), *tokenizer.encode("a"), *tokenizer.encode("b")
    session.said(session.chat(ASK), drawn(a, b), "ab", "length")
    after = session.chat(said("ab"))
    session.said(after, drawn(b), "b", "stop")
    (whole,) = session.conversations()
    assert whole.completion_tokens[:2] == [a, b]
    assert tokenizer.encode("ab") != [a, b]
    assert whole.spans == [(0, 2), (len(whole.completion_tokens) - 1, len(whole.completion_tokens))]
    assert whole.logprobs == [-0.5] * 3
    third = session.chat((*said("ab"), {"role": "assistant", "content": "b"}, {"role": "user", "content": "go"}))
    assert third.parent is session.answers[1]
    assert list(third.ids[: len(after.ids) + 1]) == [*after.ids, b]


def test_a_template_that_rewrites_earlier_turns_begins_a_conversation_anew() -> None:
    tokenizer = merging(REWRITES)
    session, a, b = Session(tokenizer), *tokenizer.encode("a"), *tokenizer.encode("b")
    session.said(session.chat(ASK), drawn(a, b), "ab", "stop")
    again = session.chat(said("ab"))
    assert again.parent is None
    assert list(again.ids) == tokenizer.encode_chat(said("ab"))
