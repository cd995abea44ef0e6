"""Text to ids and back from a tokenizer's own files."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Fast

from farflung.errors import UserError
from farflung.model.tokenizer import Tokenizer

_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL = ("<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|stop|>")


def _byte_level() -> Fast:
    """Bytes as tokens, special tokens after them, and a post-processor that puts <s> in front."""
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    fast = Fast(models.BPE(vocabulary, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    fast.add_tokens(["<think>"])
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return fast


def _files(fast: Fast | None = None, settings: dict[str, Any] | None = None, **more: Any) -> dict[str, bytes]:
    own = {"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": _TEMPLATE} if settings is None else settings
    texts = {"tokenizer.json": (fast or _byte_level()).to_str(), "tokenizer_config.json": json.dumps(own)}
    return {name: text.encode() for name, text in (texts | more).items()}


def test_any_text_comes_back() -> None:
    tokenizer = Tokenizer.from_files(_files())
    text = "Grüße, 世界!\n\t  <think>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("Grüße")) == len("Grüße".encode())


def test_a_prompt_begins_with_one_beginning_of_sequence() -> None:
    tokenizer = Tokenizer.from_files(_files())
    messages = [{"role": "user", "content": "a"}]
    assert tokenizer.render(messages) == "<s><|user|>a<|end|><|assistant|>"
    (a,) = tokenizer.encode("a")
    assert tokenizer.encode_chat(messages) == [256, 258, a, 257, 259]
    assert tokenizer.render(messages, add_generation_prompt=False) == "<s><|user|>a<|end|>"


def test_decoding_leaves_special_tokens_out_unless_asked() -> None:
    tokenizer = Tokenizer.from_files(_files())
    ids = [*tokenizer.encode("a"), 257]
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_special=False) == "a<|end|>"


def test_every_listed_end_ends_a_completion() -> None:
    files = _files(**{"generation_config.json": json.dumps({"eos_token_id": [260, 257]})})
    tokenizer = Tokenizer.from_files(files)
    assert tokenizer.eos_token_ids == (260, 257)
    assert tokenizer.reserved_token_ids == (256, 258, 259)


def test_one_listed_end_adds_to_the_tokenizers_own() -> None:
    files = _files(**{"generation_config.json": json.dumps({"eos_token_id": 260})})
    assert Tokenizer.from_files(files).eos_token_ids == (260, 257)


def test_special_tokens_that_end_nothing_are_reserved_and_ordinary_ones_are_not() -> None:
    tokenizer = Tokenizer.from_files(_files())
    (think,) = tokenizer.encode("<think>")
    assert tokenizer.eos_token_ids == (257,)
    assert tokenizer.reserved_token_ids == (256, 258, 259, 260)
    assert think == 261
    assert tokenizer.vocab_size == 262


def test_ids_without_a_token_are_reserved() -> None:
    fast = Fast(models.WordLevel({"a": 0, "<e>": 3}))
    fast.add_special_tokens([AddedToken("<e>", special=True)])
    assert Tokenizer.from_files(_files(fast, {"eos_token": {"content": "<e>"}})).reserved_token_ids == (1, 2)


def test_a_long_text_is_neither_cut_nor_padded() -> None:
    fast = _byte_level()
    fast.enable_truncation(max_length=4)
    fast.enable_padding(length=8)
    tokenizer = Tokenizer.from_files(_files(fast))
    assert len(tokenizer.encode("x" * 1000)) == 1000
    assert len(tokenizer.encode("x")) == 1


def test_32_threads_get_what_one_gets() -> None:
    """Cases T14 and 55."""
    tokenizer = Tokenizer.from_files(_files())
    texts = [f"thread {index} says {'word ' * index}<|end|>" for index in range(32)]
    alone = [tokenizer.encode(text) for text in texts]
    messages = [[{"role": "user", "content": text}] for text in texts]
    chats_alone = [tokenizer.encode_chat(message) for message in messages]
    with ThreadPoolExecutor(32) as pool:
        for _ in range(10):
            assert list(pool.map(tokenizer.encode, texts)) == alone
            assert list(pool.map(tokenizer.encode_chat, messages)) == chats_alone
            assert list(pool.map(tokenizer.decode, alone)) == [text.removesuffix("<|end|>") for text in texts]


def test_the_template_may_lie_in_its_own_file_or_under_a_name() -> None:
    messages = [{"role": "user", "content": "hi"}]
    own = Tokenizer.from_files(_files(**{"chat_template.jinja": "own {{ messages[0].content }}"}))
    assert own.render(messages) == "own hi"
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": "named {{ messages[0].content }}"}]
    settings = {"eos_token": "<|end|>", "chat_template": named}
    assert Tokenizer.from_files(_files(settings=settings)).render(messages) == "named hi"


def test_the_digest_covers_tokens_and_template_and_ignores_other_files() -> None:
    plain = Tokenizer.from_files(_files())
    assert Tokenizer.from_files(_files() | {"model.safetensors": b"x"}).digest == plain.digest
    assert Tokenizer.from_files(plain.files).digest == plain.digest
    changed = [
        _files(**{"chat_template.jinja": "x"}),
        _files(**{"generation_config.json": json.dumps({"eos_token_id": 260})}),
        _files(settings={"eos_token": "<|end|>"}),
    ]
    assert len({plain.digest, *(Tokenizer.from_files(files).digest for files in changed)}) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.json": None}, "no tokenizer.json"),
        ({"tokenizer.json": b"{}"}, "tokenizer.json is not a tokenizer"),
        ({"tokenizer_config.json": b"{"}, "tokenizer_config.json is not JSON"),
        ({"tokenizer_config.json": b"\xff"}, "tokenizer_config.json is not JSON"),
        ({"tokenizer_config.json": b"[]"}, "holds a list"),
        ({"tokenizer_config.json": b"{}"}, "no token ends a completion"),
    ],
)
def test_broken_files_are_named(change: dict[str, bytes | None], words: str) -> None:
    files = {name: data for name, data in (_files() | change).items() if data is not None}
    with pytest.raises(UserError, match=words):
        Tokenizer.from_files(files)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "no chat template"),
        ({"chat_template.jinja": b"\xff"}, "not UTF-8"),
        ({"chat_template.jinja": b"{% for %}"}, "not valid Jinja"),
    ],
)
def test_a_missing_or_broken_template_is_named_when_it_is_needed(more: dict[str, bytes], words: str) -> None:
    tokenizer = Tokenizer.from_files(_files(settings={"eos_token": "<|end|>"}) | more)
    with pytest.raises(UserError, match=words):
        tokenizer.render([{"role": "user", "content": "hi"}])


def test_a_file_too_large_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.model.tokenizer.MAX_FILE_BYTES", 100)
    with pytest.raises(UserError, match="at most 100 are allowed"):
        Tokenizer.from_files(_files())
