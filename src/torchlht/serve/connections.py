"""Connections as a server wants them: answers leave at once, and a client that has said all still gets its answer."""

from __future__ import annotations

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, but for two things.

    The head of an answer and its body are two packets. Several workers share a socket that asyncio does not take for TCP: the
    second would wait 40 ms until the client has confirmed the first. And uvicorn closes a connection when the client closes
    its side of it, which it may after a whole request.
    """

    ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection open: a whole request has come, and its answer has not gone yet."""
        answering = self.cycle is not None and not self.cycle.response_complete
        self.ended = answering and self.conn.their_state is not h11.SEND_BODY
        return self.ended

    def on_response_complete(self) -> None:
        """The answer has gone; nobody is there any more who could ask again."""
        super().on_response_complete()
        if self.ended:
            self.transport.close()
