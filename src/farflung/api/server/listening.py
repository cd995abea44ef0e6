"""Taking a port."""

import errno
import socket

from farflung.errors import UserError


def bound_socket(host: str, port: int, setting: str) -> socket.socket:
    """A socket bound to the address; taken before anything else is touched.

    Args:
        setting: what the port is called, for whoever has to choose another.

    Raises:
        UserError: no such address here, or the port is in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"host {host!r} is no address of this machine: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} on {host} is in use: stop the program that listens there, or choose another "
                f"{setting} (0 = any free one)"
            ) from error
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def shown_host(host: str) -> str:
    """The host as part of a URL."""
    return f"[{host}]" if ":" in host else host
