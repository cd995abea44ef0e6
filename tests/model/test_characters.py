"""The character tokenizer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.errors import UserError
from farflung.model.characters import BRACKETS, character_tokenizer
from farflung.model.conversation import Conversation


@settings(max_examples=25)
@given(
    st.text(st.characters(exclude_characters=BRACKETS, exclude_categories=["Cs"]), min_size=1, max_size=20), st.data()
)
def test_any_alphabet_spells_its_own_texts(alphabet: str, data: st.DataObject) -> None:
    tokenizer = character_tokenizer(alphabet)
    text = data.draw(st.text(alphabet=sorted(set(alphabet)), max_size=20))
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {*tokenizer.reserved_token_ids, *tokenizer.eos_token_ids}


def test_ids_are_special_tokens_then_characters_in_order_then_fillers() -> None:
    tokenizer = character_tokenizer("cab", num_ids=8)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_ids, tokenizer.bos_token_id) == (0, (1,), None)
    assert tokenizer.encode("abc") == [3, 4, 5]
    assert tokenizer.vocab_size == 8
    assert tokenizer.reserved_token_ids == (0, 2, 6, 7)
    assert tokenizer.decode([1, 3, 7], skip_special=False) == "⟨eos⟩a⟨reserved_7⟩"
    assert tokenizer.decode([1, 3, 7]) == "a"


def test_the_order_and_number_of_characters_do_not_change_the_tokenizer() -> None:
    assert character_tokenizer("cabba").digest == character_tokenizer("abc").digest
    assert character_tokenizer("abc").digest != character_tokenizer("abd").digest


@pytest.mark.parametrize(("num_characters", "vocab_size"), [(61, 64), (62, 128), (125, 128)])
def test_the_vocabulary_grows_in_steps_of_64_ids(num_characters: int, vocab_size: int) -> None:
    alphabet = "".join(chr(ord("0") + index) for index in range(num_characters))
    assert character_tokenizer(alphabet).vocab_size == vocab_size


def test_the_prompt_is_what_the_messages_say() -> None:
    tokenizer = character_tokenizer("ab \n")
    messages = [{"role": "system", "content": " a\n"}, {"role": "user", "content": "b "}]
    assert tokenizer.render(messages) == " a\nb "
    assert tokenizer.encode_chat(messages) == tokenizer.encode(" a\nb ")


@pytest.mark.parametrize("role", ["user", "tool"])
def test_the_end_of_sequence_id_is_all_that_parts_an_answer_from_what_follows(role: str) -> None:
    tokenizer = character_tokenizer("abc")
    conversation = Conversation(tokenizer, [{"role": "user", "content": "a"}])
    conversation.answer([*tokenizer.encode("b"), *tokenizer.eos_token_ids])
    conversation.say([{"role": role, "content": "c"}])
    assert tokenizer.decode(conversation.ids, skip_special=False) == "ab⟨eos⟩c"
    conversation.answer(tokenizer.encode("b"))  # cut at a limit
    conversation.say([{"role": role, "content": "c"}])
    assert tokenizer.decode(conversation.ids, skip_special=False) == "ab⟨eos⟩cb⟨eos⟩c"
    assert conversation.num_forks == 0


@pytest.mark.parametrize("text", ["abx", "x", "ab⟨unk⟩"])
def test_a_character_outside_the_alphabet_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"cannot spell '(x|⟨unk⟩)'"):
        character_tokenizer("ab").encode(text)


@pytest.mark.parametrize(
    ("alphabet", "num_ids", "words"), [("", 64, "empty"), ("abc", 5, "at least 6"), ("a⟩", 64, "kept for special")]
)
def test_an_impossible_alphabet_is_refused(alphabet: str, num_ids: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        character_tokenizer(alphabet, num_ids)
