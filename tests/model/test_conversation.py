"""Conversations as ids that only grow (T8 tool boundaries, T9 rewritten history, T10 what was drawn stays)."""

import json
from collections.abc import Sequence

import pytest

from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.conversation import Conversation
from farflung.model.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DROPS_THINKING = CHATML.replace("m.content +", "(m.content if loop.last else m.content.split('</think>')[-1]) +")
EOS = "⟨eos⟩"


def tokenizer(template: str = CHATML) -> Tokenizer:
    files = dict(character_tokenizer("abcdefghijklmnopqrstuvwxyz<|_>/ \n0123456789").files)
    return Tokenizer.from_files({**files, "chat_template.jinja": template.encode()})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def ids_of(text: str, made: Tokenizer) -> list[int]:
    return made.encode(text)


@pytest.mark.parametrize("role", ["user", "tool"])
def test_built_ids_equal_the_whole_conversation_rendered_at_once(role: str) -> None:  # T8
    made = tokenizer()
    conversation = Conversation(made, [user("one")])
    assert conversation.answer(ids_of(f"two{EOS}", made)) == "two"
    conversation.say([{"role": role, "content": "three"}])
    conversation.answer(ids_of(f"four{EOS}", made))
    conversation.say([user("five")])
    whole: Sequence[dict[str, str]] = [
        user("one"), {"role": "assistant", "content": "two"}, {"role": role, "content": "three"},
        {"role": "assistant", "content": "four"}, user("five"),
    ]  # fmt: skip
    assert conversation.ids == made.encode_chat(whole)
    assert conversation.num_forks == 0


def test_an_answer_cut_at_the_limit_is_closed_by_the_template() -> None:
    made = tokenizer()
    conversation = Conversation(made, [user("one")])
    conversation.answer(ids_of("tw", made))
    conversation.say([user("go on")])
    assert made.decode(conversation.ids, skip_special=False).count(f"tw{EOS}\n") == 1


def merging() -> Tokenizer:
    """Encodes `ab` as one id, though a model may draw `a` and then `b`."""
    made = tokenizer()
    table = json.loads(made.files["tokenizer.json"])
    vocab = {content: token for token, content in enumerate("abcdefghijklmnopqrstuvwxyz<|_>/ \n")}
    table["pre_tokenizer"] = None
    added = [{**token, "id": len(vocab) + 1 + place} for place, token in enumerate(table["added_tokens"])]
    table["model"] = {"type": "BPE", "vocab": {**vocab, "ab": len(vocab)}, "merges": ["a b"]}
    return Tokenizer.from_files({**made.files, "tokenizer.json": json.dumps({**table, "added_tokens": added}).encode()})


def test_drawn_ids_stay_as_drawn_even_if_their_text_encodes_otherwise() -> None:
    made = merging()
    drawn = [made.encode("a")[0], made.encode("b")[0], made.encode(EOS)[0]]
    assert made.encode("ab") != drawn[:2]
    conversation = Conversation(made, [user("x")])
    start = len(conversation.ids)
    assert conversation.answer(drawn) == "ab"
    conversation.say([user("y")])
    assert conversation.ids[start : start + len(drawn)] == drawn
    assert conversation.num_forks == 0


def test_a_template_that_rewrites_history_forks_and_says_so() -> None:  # T9
    made = tokenizer(DROPS_THINKING)
    conversation = Conversation(made, [user("one")])
    conversation.answer(ids_of(f"<think>hm</think>two{EOS}", made))
    conversation.say([user("three")])
    assert conversation.num_forks == 1
    text = made.decode(conversation.ids, skip_special=False)
    assert "hm" not in text
    assert text.endswith("<|im_start|>assistant\n")
    conversation.answer(ids_of(f"four{EOS}", made))
    conversation.say([user("five")])
    assert conversation.num_forks == 1


def test_a_refused_message_changes_nothing() -> None:
    made = tokenizer(
        CHATML.replace("{% for", "{% if messages|length > 2 %}{{ raise_exception('no') }}{% endif %}{% for", 1)
    )
    conversation = Conversation(made, [user("one")])
    conversation.answer(ids_of(f"two{EOS}", made))
    before = conversation.ids
    with pytest.raises(UserError, match="no"):
        conversation.say([user("three")])
    assert conversation.ids == before
