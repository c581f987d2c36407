"""How `lht serve` hands over to uvicorn; `make test-lowest` asks the oldest one that is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from torchlht.commands.serve import ServeArgs, run_serve

uvicorn = pytest.importorskip("uvicorn", reason="pip install 'torchlht[serve]'")


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
