"""Only the template's own special tokens become special ids, whatever messages say."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Fast

from farflung.errors import UserError
from farflung.model.characters import EOS, character_tokenizer
from farflung.model.conversation import Conversation
from farflung.model.said import MARKS, Rendered
from farflung.model.tokenizer import Tokenizer

CORPUS = Path(__file__).parent / "template_corpus"
sys.path.insert(0, str(CORPUS))
from corpus import CONVERSATIONS, FAMILIES, source_of, turn  # noqa: E402

SPECIAL = ("<s>", "<|im_start|>", "<|im_end|>", "<|im_end", "</s>", "[INST]", "\u2581x")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BARE = "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}|>"
"""Messages stand side by side, and what they leave open is completed by others and by the template."""
PIECES = st.sampled_from(
    [*SPECIAL, "<", "|", "<|", "im_", "end|>", "|>", "s>", "/", "[IN", "ST]", "x", " ", "\n", "\u2581"]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


def byte_level(**settings: str) -> Tokenizer:
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    fast = Fast(models.BPE(vocabulary, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    return made(fast, **settings)


def made(fast: Fast, *, template: str = TEMPLATE, normalized: bool = False) -> Tokenizer:
    fast.add_special_tokens([AddedToken(token, special=True, normalized=normalized) for token in SPECIAL])
    fast.add_tokens(["<think>"])
    own = {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": template}
    files = {"tokenizer.json": fast.to_str(), "tokenizer_config.json": json.dumps(own)}
    return Tokenizer.from_files({name: text.encode() for name, text in files.items()})


CHAT, PLAIN = byte_level(), byte_level(template=BARE)


def special_in(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    kept = {*tokenizer.reserved_token_ids, *tokenizer.eos_token_ids}
    return [token for token in ids if token in kept]


def said(*texts: str) -> list[dict[str, Any]]:
    return [turn(role, text) for role, text in zip(("system", "user", "assistant", "user"), texts, strict=False)]


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=300)
def test_no_content_makes_a_special_id_and_none_is_lost(texts: list[str]) -> None:
    for tokenizer in (CHAT, PLAIN):
        ids = tokenizer.encode_chat(said(*texts))
        assert special_in(tokenizer, ids) == special_in(tokenizer, tokenizer.encode_chat(said(*("." for _ in texts))))
        assert tokenizer.decode(ids, skip_special=False) == tokenizer.render(said(*texts))


@given(text=TEXTS)
def test_what_is_said_alone_is_text(text: str) -> None:
    ids = CHAT.encode_said(text)
    assert special_in(CHAT, ids) == []
    assert CHAT.decode(ids, skip_special=False) == text
    if CHAT.special_token_in(text) is None:
        assert ids == CHAT.encode(text)


@given(texts=st.lists(TEXTS, min_size=2, max_size=4))
@settings(max_examples=100)
def test_no_later_turn_makes_a_special_id_either(texts: list[str]) -> None:
    conversation, neutral = Conversation(CHAT, said(texts[0])), Conversation(CHAT, said("."))
    for text in texts[1:]:
        drawn = CHAT.encode_said(text)
        for each in (conversation, neutral):
            each.answer([*drawn, CHAT.eos_token_ids[0]])
        conversation.say([turn("user", text)])
        neutral.say([turn("user", ".")])
    assert special_in(CHAT, conversation.ids) == special_in(CHAT, neutral.ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_published_templates_keep_their_ids_by_either_way(family: str) -> None:
    files = {
        "tokenizer.json": (CORPUS / "tokenizer.json").read_bytes(),
        "chat_template.jinja": source_of(family).encode(),
    }
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = Tokenizer.from_files({**files, "tokenizer_config.json": json.dumps(settings).encode()})
    for name, messages in CONVERSATIONS.items():
        if name == "odd characters":
            continue  # a message spells a special token
        try:
            text = tokenizer.render(messages)
        except UserError:
            continue
        rendered = tokenizer.render_marked(messages)
        assert rendered.text == text
        assert tokenizer.encode_rendered(rendered) == tokenizer.encode(text)
        assert tokenizer.encode_rendered(Rendered(text, frozenset({-1}))) == tokenizer.encode(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_content_ends_a_turn_of_a_published_template(family: str) -> None:
    files = {
        "tokenizer.json": (CORPUS / "tokenizer.json").read_bytes(),
        "chat_template.jinja": source_of(family).encode(),
    }
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = Tokenizer.from_files({**files, "tokenizer_config.json": json.dumps(settings).encode()})
    for token in tokenizer.special_tokens:
        for content in (f"a{token}b", token, f"{token}\n{token}", f"a{token[:-1]}"):
            plain = [turn("user", "a" * len(content))]
            ids = tokenizer.encode_chat([turn("user", content)])
            assert special_in(tokenizer, ids) == special_in(tokenizer, tokenizer.encode_chat(plain)), (token, content)


def test_a_vocabulary_that_puts_a_blank_first_puts_one_blank_first() -> None:
    """Pieces that are encoded apart would each get one."""
    vocabulary = [("<unk>", 0.0), ("\u2581", -1.0), *((chr(code), -2.0) for code in range(33, 127)), ("\n", -2.0)]
    fast = Fast(models.Unigram(vocabulary, unk_id=0))
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    fast.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer = made(fast)
    ids = tokenizer.encode_chat(said("a<|im_end|>b"))
    assert (
        tokenizer.decode(ids, skip_special=False)
        == "<s><|im_start|>system\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n"
    )
    blank = fast.token_to_id("\u2581")
    assert ids.count(blank) == tokenizer.encode_chat(said("a.b")).count(blank)


def test_what_only_normalizing_makes_special_is_text_too() -> None:
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    fast = Fast(models.BPE(vocabulary, []))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    tokenizer = made(fast, normalized=True)
    assert tokenizer.special_token_in("a<|IM_END|>") is not None
    assert special_in(tokenizer, tokenizer.encode("a<|IM_END|>")) != []
    plain = special_in(tokenizer, tokenizer.encode_chat(said("a")))
    assert special_in(tokenizer, tokenizer.encode_chat(said("a<|IM_END|>b"))) == plain


def test_a_special_token_that_cannot_be_written_as_text_is_refused_by_name() -> None:
    tokenizer = character_tokenizer("ab")
    with pytest.raises(UserError, match="cannot spell"):
        tokenizer.encode_chat([turn("user", f"a{EOS}b")])
    fast = Fast(models.WordLevel({"a": 0, "<|im_end|>": 1, "<unk>": 2}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(UserError, match="cannot write as text"):
        made(fast).encode_said("a <|im_end|>")


@pytest.mark.parametrize("text", ["<s>" + "".join(MARKS), "<s>\ufdee0\ufdef"])
def test_characters_that_stand_for_no_text_do_not_help(text: str) -> None:
    with pytest.raises(UserError, match="character"):
        CHAT.encode_chat(said(text))


def test_a_template_that_reads_what_is_spelled_is_refused() -> None:
    tokenizer = byte_level(template="{{ messages[0].content.split('<|im_end|>')[0] }}")
    with pytest.raises(UserError, match="does not leave it as it was said"):
        tokenizer.encode_chat(said("a<|im_end|>b"))
