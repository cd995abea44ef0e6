"""Attacks over the network. Where nothing listens outside, a refusal still has to be a refusal to make a socket."""

from farflung.sandbox.code.attacks.attack import Attack, tries

NETWORK: tuple[Attack, ...] = (
    tries(
        "connect to the host's loopback",
        "E5",
        """
import socket
attempt("127.0.0.1", lambda: socket.create_connection(("127.0.0.1", {port}), timeout=1))
attempt("::1", lambda: socket.create_connection(("::1", {port}), timeout=1))
""",
    ),
    tries(
        "connect to the outside",
        "E5",
        """
import socket
for address in ("192.0.2.1", "169.254.169.254", "localhost"):
    attempt(address, lambda: socket.create_connection((address, 80), timeout=0.5))
attempt("names", lambda: socket.getaddrinfo("example.org", 80))
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        return udp.sendto(b"x", ("192.0.2.1", 53))
attempt("datagram", send)
""",
    ),
    tries(
        "listen",
        "E5",
        'import socket\nattempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))\n',
    ),
    tries(
        "sockets of other families",
        "E5",
        """
import socket
for family in (1, 2, 10, 16, 17, 38, 40):  # unix, inet, inet6, netlink, packet, alg, vsock
    for kind in (1, 2, 3):
        attempt((family, kind), lambda: socket.socket(family, kind))
        if family != 1:
            attempt(("pair", family, kind), lambda: socket.socketpair(family, kind))
""",
    ),
    tries(
        "a connection that the supervisor forgot to close",
        "E4",
        """
for descriptor in range(3, 1024):
    attempt(descriptor, lambda: os.fstat(descriptor))
""",
    ),
)
