"""Examples: what is read, what is refused, what is learned from."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.trainer.sft.data import Example, read_examples
from farflung.trainer.sft.encode import EMPTY, REWRITTEN, TOO_LONG, encode, encode_examples

EOS = "⟨eos⟩"
CHATML = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def tokenizer(template: str = CHATML) -> Tokenizer:
    files = dict(character_tokenizer("abcdefghijklmnopqrstuvwxyz<>/ \n0123456789").files)
    return Tokenizer.from_files({**files, "chat_template.jinja": template.encode()})


def chat(*turns: str) -> Example:
    """A user's and an assistant's turns alternate."""
    return Example(
        messages=tuple({"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns))
    )


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_both_forms_and_both_formats_give_the_same_examples(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    expected = [chat("a", "b")] * 2
    lines = write(tmp_path / "a.jsonl", {"messages": messages}, {"prompt": "a", "completion": "b"})
    assert read_examples(lines) == expected
    pq.write_table(pa.table({"messages": [messages, messages], "other": [1, 2]}), tmp_path / "a.parquet")
    assert read_examples(tmp_path / "a.parquet") == expected
    pq.write_table(pa.table({"prompt": ["a", "a"], "completion": ["b", "b"]}), tmp_path / "b.parquet")
    assert read_examples(tmp_path / "b.parquet") == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no examples"),
        ('{"prompt": "a", "completion": "b"}\n{', "row 2 is not JSON"),
        ("[1]\n", "row 1 is '[1]'"),
        ('{"text": "a"}\n', "needs messages"),
        ('{"prompt": "a"}\n', "needs messages"),
        ('{"messages": []}\n', "row 1: messages"),
        ('{"messages": [{"role": "user", "content": "a"}]}\n', "no assistant"),
        ('{"messages": [{"role": "robot", "content": "a"}]}\n', "a role of system, user"),
        ('{"messages": [{"role": "user", "content": 3}]}\n', "must have a content"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(UserError) as caught:
        read_examples(tmp_path / "a.jsonl")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_broken_parquet_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(UserError, match="not a Parquet file"):
        read_examples(tmp_path / "a.parquet")


def test_only_what_the_assistant_says_is_learned_and_its_end() -> None:
    made = tokenizer()
    encoded = encode(chat("hi", "yo", "and", "so"), made)
    assert encoded is not None
    ids, learned = encoded
    assert (
        made.decode(ids, skip_special=False) == f"<user>hi{EOS}\n<assistant>yo{EOS}\n<user>and{EOS}\n<assistant>so{EOS}"
    )
    spoken = [token for token, is_learned in zip(ids, learned, strict=True) if is_learned]
    assert made.decode(spoken, skip_special=False) == f"yo{EOS}so{EOS}"


def test_the_prompt_has_the_ids_that_sampling_starts_from() -> None:
    """Case T11: nothing of the answer merges into the prompt."""
    made = tokenizer()
    (sample,), _ = encode_examples([chat("hi", "yo")], made, max_tokens=100)
    prompt = sample.tokens[: sample.num_prompt_tokens].tolist()
    assert prompt == made.encode_chat([{"role": "user", "content": "hi"}])
    assert sample.loss_mask.all()


def test_what_is_left_out_is_counted() -> None:
    samples, skipped = encode_examples([chat("a", "b" * 99), chat("a", "b")], tokenizer(), max_tokens=50)
    assert len(samples) == 1
    assert skipped == {TOO_LONG: 1}
    no_end = CHATML.replace("+ eos_token + '\n'", "")
    samples, skipped = encode_examples([chat("a", "")], tokenizer(no_end), max_tokens=50)
    assert (samples, skipped) == ([], {EMPTY: 1})
    drops = CHATML.replace("m.content +", "(m.content if loop.last else 'cut') +")
    samples, skipped = encode_examples([chat("a", "b", "c", "d")], tokenizer(drops), max_tokens=50)
    assert (samples, skipped) == ([], {REWRITTEN: 1})


def test_an_example_that_cannot_be_spelled_is_named() -> None:
    with pytest.raises(UserError, match="example 2"):
        encode_examples([chat("a", "b"), chat("a", "\u4f60")], tokenizer(), max_tokens=50)
