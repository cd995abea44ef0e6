"""Text to token ids and back, from a Hugging Face tokenizer's own files, without transformers and without torch.

Nothing is added or cut on the way: no beginning-of-sequence id that the text does not spell (chat templates write their
own), no truncation or padding that a tokenizer file may ask for, no silent loss of characters. What a message says is
text: only the chat template's own special tokens become special ids (`model.said`).
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import tokenizers

from farflung.errors import UserError
from farflung.model.chat_template import ChatTemplate
from farflung.model.literal import LiteralTokenizer
from farflung.model.said import Rendered, Spellings, render_marked
from farflung.wire.canonical import tagged_digest
from farflung.wire.task import Message

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
GENERATION_FILE = "generation_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
TOKENIZER_FILES = (TOKENIZER_FILE, SETTINGS_FILE, TEMPLATE_FILE, GENERATION_FILE, SPECIAL_TOKENS_FILE)
"""Every file that can change a token id, a prompt's text or the end of a completion."""

ChatMessage = Message | Mapping[str, Any]
"""A task's message, or anything with at least `role` and `content`."""

MAX_FILE_BYTES = 64 << 20


class Tokenizer:
    """Immutable after construction, so that any number of threads may use one."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = {name: bytes(files[name]) for name in TOKENIZER_FILES if name in files}
        """The bytes it was made from, by name."""
        self._tokenizer = _parse(self.files)
        self._settings = _json(self.files, SPECIAL_TOKENS_FILE) | _json(self.files, SETTINGS_FILE)
        self._special_ids = {
            token_id: token.content
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self.vocab_size: int = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        """Largest id + 1."""
        self.bos_token_id = self._named_id("bos_token")
        self.pad_token_id = self._named_id("pad_token")
        self._unknown_id = self._id_of(getattr(self._tokenizer.model, "unk_token", None))
        self.eos_token_ids = self._eos_token_ids()
        """Each of them ends a completion."""

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """Build from file bytes by name; names that are not a tokenizer's are ignored.

        Raises:
            UserError: `tokenizer.json` is missing or broken, or no token ends a completion.
        """
        return cls(files)

    def encode(self, text: str) -> list[int]:
        """Ids of the whole text, and of nothing else. Special tokens spelled out in it become their ids.

        Raises:
            UserError: a character that the vocabulary cannot spell.
        """
        return self._ids(self._tokenizer, text)

    def encode_said(self, text: str) -> list[int]:
        """Ids of what somebody says: special tokens spelled out in it stay text.

        Raises:
            UserError: as `encode`, or a special token that cannot be written as text.
        """
        if self.special_token_in(text) is None:
            return self.encode(text)
        return self.encode_rendered(Rendered(text, frozenset(range(len(text)))))

    def encode_rendered(self, rendered: Rendered) -> list[int]:
        """Ids of a prompt, or of a part of one. Raises as `encode_said`."""
        if not rendered.said:
            return self.encode(rendered.text)
        literal = self._literal
        return literal.meant(self._ids(literal.fast, literal.rename(rendered)))

    def _ids(self, fast: Any, text: str) -> list[int]:
        try:
            encoding = fast.encode(text, add_special_tokens=False)
        except TypeError as error:
            raise UserError("the text has a lone surrogate (half a character): it is no Unicode text") from error
        ids: list[int] = encoding.ids
        if self._unknown_id is not None and self._unknown_id in ids:
            start, end = encoding.offsets[ids.index(self._unknown_id)]
            raise UserError(f"the tokenizer cannot spell {text[start:end]!r} (character {start} of the text)")
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids, without special tokens unless asked for; an id without a token has no text."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def render(self, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> str:
        """The prompt's text by the chat template, for people.

        Raises:
            UserError: there is no template, or it refuses the messages.
        """
        return self._template.render(_plain(messages), add_generation_prompt=add_generation_prompt)

    def render_marked(self, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> Rendered:
        """The same for `encode_rendered`, which tells what the messages say from what the template writes.

        Raises:
            UserError: as `render`, or the template does not leave a special token as it was said.
        """
        return render_marked(
            _plain(messages),
            self._spellings,
            lambda plain: self._template.render(plain, add_generation_prompt=add_generation_prompt),
        )

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of the rendered prompt, up to where the completion starts.

        Raises:
            UserError: as `render_marked` and `encode_said`.
        """
        return self.encode_rendered(self.render_marked(messages))

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Their texts, as the vocabulary orders them."""
        return tuple(token for token in self._special_ids.values() if token)

    def special_token_in(self, text: str) -> str | None:
        """A special token that `text` spells, whose id it would become by `encode`; None if there is none."""
        return self._spellings.first_in(text)

    @cached_property
    def reserved_token_ids(self) -> tuple[int, ...]:
        """Ids that must never be sampled, ascending: special tokens that end nothing, and ids without a token."""
        used = set(self._tokenizer.get_vocab(with_added_tokens=True).values())
        holes = set(range(self.vocab_size)) - used
        return tuple(sorted((self._special_ids.keys() | holes) - set(self.eos_token_ids)))

    @cached_property
    def digest(self) -> str:
        """Identity of everything that turns messages into ids."""
        parts = [part for name in sorted(self.files) for part in (name.encode(), self.files[name])]
        return tagged_digest("farflung/tokenizer/1", *parts)

    @cached_property
    def _spellings(self) -> Spellings:
        added = self._tokenizer.get_added_tokens_decoder().values()
        normalizer = self._tokenizer.normalizer
        changes = normalizer is not None and any(token.special and token.normalized for token in added)
        return Spellings(self.special_tokens, normalizer.normalize_str if changes else None)

    @cached_property
    def _literal(self) -> LiteralTokenizer:
        special = {token_id: token for token_id, token in self._special_ids.items() if token}
        return LiteralTokenizer(_parse(self.files), special, self._spellings)

    @cached_property
    def _template(self) -> ChatTemplate:
        source = _template_source(self.files, self._settings)
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        contents = {name: _content(self._settings.get(name)) for name in names}
        return ChatTemplate(source, {name: content for name, content in contents.items() if content is not None})

    def _named_id(self, name: str) -> int | None:
        return self._id_of(_content(self._settings.get(name)))

    def _id_of(self, content: str | None) -> int | None:
        token_id: int | None = None if content is None else self._tokenizer.token_to_id(content)
        return token_id

    def _eos_token_ids(self) -> tuple[int, ...]:
        listed = _json(self.files, GENERATION_FILE).get("eos_token_id")
        ids = [token_id for token_id in (listed if isinstance(listed, list) else [listed]) if isinstance(token_id, int)]
        own = self._named_id("eos_token")
        if own is not None and own not in ids:
            ids.append(own)
        if not ids:
            raise UserError(
                f"no token ends a completion: name an eos_token in {SETTINGS_FILE} "
                f"or an eos_token_id in {GENERATION_FILE}"
            )
        return tuple(ids)


def _plain(messages: Sequence[ChatMessage]) -> list[Mapping[str, Any]]:
    return [
        {"role": message.role, "content": message.content} if isinstance(message, Message) else message
        for message in messages
    ]


def _parse(files: Mapping[str, bytes]) -> Any:
    if TOKENIZER_FILE not in files:
        raise UserError(f"the model has no {TOKENIZER_FILE}: save its tokenizer in the fast (tokenizers) format")
    for name, data in files.items():
        if len(data) > MAX_FILE_BYTES:
            raise UserError(f"{name} has {len(data)} bytes: at most {MAX_FILE_BYTES} are allowed")
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(files[TOKENIZER_FILE])
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{TOKENIZER_FILE} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The table in a file; empty if there is no such file."""
    try:
        value = json.loads(files.get(name, b"{}"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{name} holds a {type(value).__name__}: it must be a table")
    return value


def _template_source(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> str:
    """From the template's own file, else from the settings: one template, or the one named `default` of several."""
    if TEMPLATE_FILE in files:
        try:
            return files[TEMPLATE_FILE].decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{TEMPLATE_FILE} is not UTF-8 text: {error}") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        raise UserError(f"the tokenizer has no chat template: put one in {TEMPLATE_FILE} beside {TOKENIZER_FILE}")
    return template


def _content(token: object) -> str | None:
    """A token named in the settings, which older files spell as a table with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
