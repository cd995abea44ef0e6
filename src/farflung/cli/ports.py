"""Ports of this machine."""

import errno
import socket
from urllib.parse import urlsplit

from farflung.errors import UserError


def usable_port(host: str, port: int) -> int:
    """`port`, or any free one for 0.

    Raises:
        UserError: the port is in use, or the host is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise UserError(port_sentence(host, port, error)) from error


def port_sentence(host: str, port: int, error: OSError) -> str:
    """Why listening there failed, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use: stop the process that listens there, or choose another port with "
            "--coordinator.port (0 = any free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is not allowed for this user: choose one above 1023 with --coordinator.port"
    return f"{host} is not an address that this machine can listen on ({error.strerror}): change --coordinator.host"


def is_url(text: str) -> bool:
    """Whether it names a host to connect to over HTTP."""
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:  # a port that is no number, or beyond 65535
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and not parts.username


def coordinator_url(host: str, port: int, *, is_tls: bool = False) -> str:
    """How the other roles on this machine reach a coordinator that listens on `host`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 (nothing is bound here)
    return f"{'https' if is_tls else 'http'}://{reachable}:{port}"
