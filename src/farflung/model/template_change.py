"""A chat template must not change unnoticed: two copies of a model that differ in it turn one chat into other tokens.

A folder can hold two templates (a file of its own, and a field of the tokenizer's settings), a GGUF file has one in its
metadata, and the folder that is replaced has one. All must be the same text, unless a person names the one to take.
"""

import difflib
import json
from collections.abc import Mapping

from farflung.errors import UserError
from farflung.model.chat_template import ChatTemplate
from farflung.model.tokenizer import SETTINGS_FILE, TEMPLATE_FILE
from farflung.wire.canonical import sha256_hex

MAX_DIFF_LINES = 40
_FIELD = "chat_template"


def template_of(files: Mapping[str, bytes]) -> str | None:
    """The text that a tokenizer of these files renders with; None if there is none."""
    return next(iter(templates_in(files).values()), None)


def template_digest(text: str) -> str:
    """sha256 of a template's text."""
    return sha256_hex(text.encode())


def templates_in(files: Mapping[str, bytes]) -> dict[str, str]:
    """Every template by where it is; the first is the one that counts.

    Raises:
        UserError: a file is not what its name says.
    """
    found = dict[str, str]()
    if TEMPLATE_FILE in files:
        try:
            found[TEMPLATE_FILE] = files[TEMPLATE_FILE].decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{TEMPLATE_FILE} is not UTF-8 text: {error}") from error
    template = _settings(files).get(_FIELD)
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if isinstance(template, str):
        found[SETTINGS_FILE] = template
    return found


def require_one(templates: Mapping[str, str | None]) -> None:
    """Raises UserError, with the difference: the templates of these places are not the same (None: there is none)."""
    (first_place, first), *others = templates.items()
    for place, text in others:
        if text != first:
            raise UserError(
                f"the chat template in {place} is not that in {first_place}:\n"
                f"{_difference(first or '', text or '', first_place, place)}\n"
                "a model must be asked as it was trained: save the right one in a file and name that with --template"
            )


def with_template(files: Mapping[str, bytes], text: str) -> dict[str, bytes]:
    """The files with this template as the only one.

    Raises:
        UserError: it is not a template.
    """
    ChatTemplate(text, {})
    settings = _settings(files)
    changed = dict(files)
    if settings.pop(_FIELD, None) is not None:
        changed[SETTINGS_FILE] = json.dumps(settings, indent=2, ensure_ascii=False).encode()
    return changed | {TEMPLATE_FILE: text.encode()}


def _settings(files: Mapping[str, bytes]) -> dict[str, object]:
    try:
        settings = json.loads(files.get(SETTINGS_FILE, b"{}"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{SETTINGS_FILE} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{SETTINGS_FILE} holds a {type(settings).__name__}: it must be a table")
    return settings


def _difference(before: str, after: str, before_place: str, after_place: str) -> str:
    lines = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), before_place, after_place, lineterm="", n=1)
    )
    if not lines:
        return "(they differ in how lines end)"
    more = [f"... and {len(lines) - MAX_DIFF_LINES} more lines"] if len(lines) > MAX_DIFF_LINES else []
    return "\n".join(lines[:MAX_DIFF_LINES] + more)
