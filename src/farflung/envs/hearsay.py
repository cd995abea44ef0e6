"""What others said, as it may be repeated to a model: it cannot spell the tokens that part turns from each other.

A model that writes `<|im_end|>` letter by letter would otherwise put words into somebody's mouth as soon as an
environment repeats what it said. Each such token gets a space behind its first character, in one pass; what would spell
one even then is left out. This module does not know environments.
"""

from msgspec.structs import replace

from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Message


def plain(message: Message, tokenizer: Tokenizer) -> Message:
    """The message without special tokens in it."""
    text = message.content
    if tokenizer.special_token_in(text) is None:
        return message
    for token in tokenizer.special_tokens:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    while (spelled := tokenizer.special_token_in(text)) is not None:
        text = text.replace(spelled, "")
    return replace(message, content=text)
