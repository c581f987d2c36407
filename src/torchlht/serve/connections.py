"""Connections whose client has said all that it will say, and waits for its answer. uvicorn would close them."""

from __future__ import annotations

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class HalfClosed(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it; a client that closes its side after a whole request still gets its answer."""

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection open: a whole request has come, and its answer has not gone yet."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering and self.conn.their_state is not h11.SEND_BODY
