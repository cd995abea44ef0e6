"""Which addresses of relays are passed on, and to whom: a list of relays must not send anybody to strangers' machines.

    registered by itself     the host is a number, and the one that the call came from: nobody names another machine
    listed by the operator   anything, names of hosts too
    private numbers          only where the operator allows it, and only told to those who call from private ones

So neither the coordinator, which looks at relays, nor a worker is led to a service inside its own network. Pure; names
are never resolved here.
"""

import ipaddress
from urllib.parse import urlsplit

from farflung.wire.relay import require_servers

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def problem_of(server: str, caller: str | None, *, may_be_private: bool) -> str:
    """Why a relay that registers itself is not taken; empty = it is.

    Args:
        server: the URL that it gives.
        caller: address that its call came from.
        may_be_private: whether loopback and private networks will do.
    """
    try:
        require_servers(url=(server,))
    except ValueError as error:
        return str(error)
    host = number_of(server)
    if host is None:
        return "the host is a name: give a number, or have the operator list it in coordinator.relays"
    if host != address_of(caller):
        return f"the call came from {caller}, so that is the only host that can be registered"
    if not host.is_global and not may_be_private:
        return "the address is private: the operator allows such with coordinator.private_relays"
    return ""


def may_be_told(host: Address | None, reader: Address | None) -> bool:
    """Whether a reader who calls from an address is told of a server that was taken.

    Loopback is for this machine, private networks are for private networks.

    Args:
        host: of the server (`number_of`).
        reader: None if it is not known (`address_of`).
    """
    if host is None or host.is_global:
        return True
    if reader is None:
        return False
    return reader.is_loopback if host.is_loopback else not reader.is_global


def number_of(server: str) -> Address | None:
    """The host of a URL as a number; None for a name."""
    return address_of(urlsplit(server).hostname)


def address_of(text: str | None) -> Address | None:
    """The number that a text is, without its zone; None if it is none."""
    try:
        address = ipaddress.ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address
