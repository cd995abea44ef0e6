"""Reading the small files of a model folder that may be anybody's: regular files alone, and no more than a limit."""

import os
import stat
from pathlib import Path

from farflung.errors import UserError

MAX_BYTES = 64 << 20


def read_small(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The file's bytes.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is a device or a pipe (which could give bytes for ever, or none), too long, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a regular file: a model folder holds files alone")
        if status.st_size > max_bytes:
            raise UserError(f"{path} has {status.st_size} bytes: at most {max_bytes} are read")
        return file.read(max_bytes)
