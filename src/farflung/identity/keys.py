"""A node's key in a file that only its owner reads: one line, the private key in hex.

The address (`0x` and 40 hex digits, EIP-55 checksum) is the node's identity. Does not know what is signed.
"""

import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from coincurve import PrivateKey

from farflung.errors import UserError
from farflung.identity.ethereum import address_of

_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")
_MAX_FILE_BYTES = 1024
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class NodeKey:
    """A private key; never printed."""

    private: PrivateKey = field(repr=False)

    @cached_property
    def address(self) -> str:
        """Who this is, to everybody else."""
        return address_of(self.private.public_key.format(compressed=False))

    def sign(self, message_hash: bytes) -> bytes:
        """65 bytes r | s | v over 32, the same every time (RFC 6979), s in the lower half."""
        signature = self.private.sign_recoverable(message_hash, hasher=None)
        return signature[:64] + bytes([27 + signature[64]])


def new_key() -> NodeKey:
    return NodeKey(PrivateKey())


def key_of(path: str) -> NodeKey:
    """The key in a file, made if there is none; a new one that is kept nowhere for an empty path.

    Raises:
        UserError: as `make_key`.
    """
    return make_key(Path(path)) if path else new_key()


def key_from_bytes(private: bytes) -> NodeKey:
    """Raises ValueError: not 32 bytes that make a key."""
    return NodeKey(PrivateKey(private))


def read_key(path: Path) -> NodeKey:
    """The key in a file.

    Raises:
        UserError: there is none, others can read it, or it is not a key.
    """
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise UserError(f"key {path}: {error.strerror or error}") from error
    if mode & OTHERS:
        raise UserError(f"key {path} can be read by others: chmod 600 {path}")
    if not _KEY.fullmatch(text):
        raise UserError(f"key {path} does not hold 64 hex digits")
    try:
        return key_from_bytes(bytes.fromhex(text.removeprefix("0x")))
    except ValueError as error:  # zero, or beyond the curve's order
        raise UserError(f"key {path} is not a key of secp256k1") from error


def make_key(path: Path) -> NodeKey:
    """The key in a file, made if there is no file; two processes that make it at once get the same.

    Raises:
        UserError: as `read_key`, or the file cannot be written.
    """
    if path.exists():
        return read_key(path)
    key = new_key()
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key.private.to_hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # unlike a rename, fails if the other process was first
        except FileExistsError:
            return read_key(path)
        finally:
            draft.unlink()
    except OSError as error:
        raise UserError(f"key {path} cannot be written: {error.strerror or error}") from error
    return key
