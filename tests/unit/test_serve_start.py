"""`lht serve` and the packages under it: `make test-lowest` asks the oldest uvicorn and starlette that are allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from torchlht.commands.serve import ServeArgs, run_serve

uvicorn = pytest.importorskip("uvicorn", reason="pip install 'torchlht[serve]'")

FORM = b"""--x\r
Content-Disposition: form-data; name="confidence"\r
\r
0.5\r
--x\r
Content-Disposition: form-data; name="file"; filename="a.jpg"\r
\r
bytes of a\r
--x--"""


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application."""


def test_uvicorn_takes_our_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlht.serve.connections import Connection

    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: given.update(options))
    monkeypatch.setattr("torchlht.serve.served.Models", lambda runs: None)
    monkeypatch.setenv("LHT_SERVE", "")
    run_serve(ServeArgs(["run"]))
    config = uvicorn.Config(nothing, http=given["http"])
    config.load()
    assert config.http_protocol_class is Connection


def test_a_form_is_read() -> None:
    from starlette.requests import Request

    from torchlht.serve.asked import read_request
    from torchlht.serve.limits import Settings

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": FORM, "more_body": False}

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    request = Request({"type": "http", "method": "POST", "headers": headers, "query_string": b"top=2"}, receive)
    asked = asyncio.run(read_request(request, Settings(())))
    assert asked.pictures == [("a.jpg", b"bytes of a")]
    assert (asked.how.confidence, asked.how.top) == (0.5, 2)
