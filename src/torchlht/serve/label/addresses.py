"""Names and addresses of this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence


def bracketed(host: str) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone."""
    return host in ("127.0.0.1", "localhost", "::1")


def names_of(host: str) -> Sequence[str]:
    """The names under which a server at this address may be asked for."""
    own = ["127.0.0.1", "localhost", "[::1]"]
    if is_local(host):
        return own
    if host not in ("0.0.0.0", "::"):
        return [*own, bracketed(host)]
    return [*own, socket.gethostname(), socket.getfqdn(), *map(bracketed, own_addresses())]


def own_addresses() -> list[str]:
    """The addresses of this machine in its networks."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks which address would be used
            found.add(str(probe.getsockname()[0]))
        except OSError:
            pass  # no network
    return sorted(found)
