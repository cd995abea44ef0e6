"""Secrets that show who may train and who may judge: one for each of the two roles, made once for a run.

The operator's coordinator makes them; its trainer and validators, here or elsewhere, show them with every call. Workers
need none. A token is 32 random bytes as text; its file is readable by its owner alone. A token is never logged.
"""

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from farflung.errors import UserError
from farflung.wire.node import Role

VARIABLE = "FARFLUNG_TOKEN"
"""Environment variable with the token itself."""
TOKEN_ROLES = (Role.TRAINER, Role.VALIDATOR)
"""Roles that have to show a token."""
MAX_TOKEN_BYTES = 256
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,256}", re.ASCII)


def make_tokens(folder: Path) -> dict[Role, str]:
    """The tokens of a run, by role: read from `folder`, or made there when they are absent.

    Raises:
        UserError: a file holds something else.
        OSError: the folder cannot be written to.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {role: _make(folder / role.value) for role in TOKEN_ROLES}


def read_token(path: Path) -> str:
    """The token of a file. Raises `UserError` when there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_BYTES + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise UserError(f"token file {path}: {error.strerror}") from error
    return check_token(text, f"token file {path}")


def check_token(text: str, place: str) -> str:
    """The token itself, which no error message repeats."""
    if not _TOKEN.fullmatch(text):
        raise UserError(f"{place} does not hold a token: copy the file from the tokens folder of the coordinator's run")
    return text


def is_token_of(role: Role, tokens: Mapping[Role, str], shown: str | None) -> bool:
    """Whether `shown` is the role's token, in a time that does not depend on how much of it is right."""
    is_same = secrets.compare_digest(tokens.get(role, "").encode(), (shown or "").encode(errors="replace"))
    return is_same and role in tokens


def _make(path: Path) -> str:
    """Whole or not at all, and whoever comes second reads what the first has made."""
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            pass
        finally:
            unfinished.unlink()
    return read_token(path)
