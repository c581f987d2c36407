"""Where a server listens, and since when."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from torchlht.errors import ConfigError

EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of a machine, and how the machine itself reaches them."""


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address; any free port for 0. Raises ConfigError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves Nagle on: 40 ms an answer
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen at {host} port {port} ({error.strerror or error}): choose another `port`") from None
    return sock


@contextlib.contextmanager
def once_it_listens(host: str, port: int, tell: Callable[[], None]) -> Iterator[None]:
    """Calls `tell` as soon as somebody listens at an address, unless what is inside has ended before."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.05):
            with contextlib.suppress(OSError), socket.create_connection((EVERY.get(host, host), port), timeout=1):
                return tell()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()
