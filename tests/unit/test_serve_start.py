"""`lht serve` and the packages under it: `make test-lowest` asks the oldest uvicorn and starlette that are allowed."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

from torchlht.commands.serve import ServeArgs, run_serve
from torchlht.errors import ConfigError

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


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.serve.served.Models", lambda runs: None)
    monkeypatch.setenv("LHT_SERVE", "")


def test_uvicorn_takes_our_connections(no_models: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlht.serve.connections import Connection

    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: given.update(options))
    run_serve(ServeArgs(["run"], port=0))
    config = uvicorn.Config(nothing, http=given["http"])
    config.load()
    assert config.http_protocol_class is Connection


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_it_says_that_it_serves_once_it_does(
    host: str, no_models: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(app: str, port: int, **options: Any) -> None:
        time.sleep(0.2)
        assert capsys.readouterr().out == ""
        with socket.create_server((host, port)):
            said = ""
            while not said:
                time.sleep(0.01)
                said = capsys.readouterr().out
        assert said == f"serving run on http://{host}:{port} · stop with Ctrl-C\n"

    monkeypatch.setattr(uvicorn, "run", run)
    run_serve(ServeArgs(["run"], host=host, port=0))


def test_a_port_that_is_taken_is_told_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1 port {port} .*choose another port"):
            run_serve(ServeArgs(["no such run"], port=port))
    assert capsys.readouterr().out == ""


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
