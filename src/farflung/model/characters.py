"""A tokenizer whose tokens are single characters, as the files of a real Hugging Face tokenizer."""

import json
from typing import Any

from farflung.errors import UserError
from farflung.model.tokenizer import GENERATION_FILE, SETTINGS_FILE, TOKENIZER_FILE, Tokenizer

BRACKETS = "⟨⟩"
"""Mathematical brackets mark special tokens, because texts of many alphabets could spell `<eos>`."""
PAD, EOS, UNKNOWN = "⟨pad⟩", "⟨eos⟩", "⟨unk⟩"
SPECIAL_TOKENS = (PAD, EOS, UNKNOWN)
"""In the order of their ids, from 0."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ message['content'] }}{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
"""The prompt is what the messages say; a completion starts right after, and what is said then right after its end."""

NUM_IDS_STEP = 64
"""Most alphabets fit into 64 ids; all of ASCII needs 128."""


def character_tokenizer(alphabet: str, num_ids: int | None = None) -> Tokenizer:
    """One id for each different character of `alphabet`, after pad, eos and unknown.

    Ids up to `num_ids` that are left over are reserved fillers, so that models of different alphabets have one shape.

    Args:
        alphabet: in any order, repeats count once.
        num_ids: size of the vocabulary; None = the smallest multiple of `NUM_IDS_STEP` that suffices.

    Raises:
        UserError: the alphabet is empty, does not fit, or contains `BRACKETS`.
    """
    characters = sorted(set(alphabet))
    num_used = len(SPECIAL_TOKENS) + len(characters)
    if not characters:
        raise UserError("the alphabet is empty: a character tokenizer needs at least one character")
    if num_ids is None:
        num_ids = -(-num_used // NUM_IDS_STEP) * NUM_IDS_STEP
    if num_used > num_ids:
        raise UserError(
            f"the alphabet has {len(characters)} characters, {num_used} ids with the special tokens, "
            f"but num_ids is {num_ids}: raise num_ids to at least {num_used}"
        )
    if set(characters) & set(BRACKETS):
        raise UserError(f"the alphabet contains {BRACKETS[0]} or {BRACKETS[1]}: they are kept for special tokens")
    fillers = [f"⟨reserved_{index}⟩" for index in range(num_used, num_ids)]
    tokens = [*SPECIAL_TOKENS, *characters, *fillers]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    special_ids = [*range(len(SPECIAL_TOKENS)), *range(num_used, num_ids)]
    definition = _definition(vocabulary, [(index, tokens[index]) for index in special_ids])
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    generation = {"eos_token_id": vocabulary[EOS], "pad_token_id": vocabulary[PAD]}
    return Tokenizer.from_files(
        {TOKENIZER_FILE: _encode(definition), SETTINGS_FILE: _encode(settings), GENERATION_FILE: _encode(generation)}
    )


def _definition(vocabulary: dict[str, int], special: list[tuple[int, str]]) -> dict[str, Any]:
    """The `tokenizer.json` of a word-level model in which each character is a word."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id, "content": content, **flags} for token_id, content in special],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()
