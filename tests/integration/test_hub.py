"""`lht push` and `torchlht.load` against a stand-in of the hub's HTTP interface on the loopback address."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import huggingface_hub.constants as hub
import pytest
import torch

import torchlht
from torchlht.answer.card import figures
from torchlht.answer.hub import push
from torchlht.cli import main
from torchlht.errors import RunError

COMMIT = "c" * 40


def oid(body: bytes) -> str:
    """A file's id, as git has it."""
    return hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()


class StandIn(BaseHTTPRequestHandler):
    """What the hub answers when a folder is put there and taken from there."""

    files: ClassVar[dict[str, bytes]] = {}

    def answer(self, value: object, code: int = 200) -> None:
        self.reply(json.dumps(value).encode(), code, {"Content-Type": "application/json"})

    def reply(self, body: bytes, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != "Bearer hf_good":
            return self.answer({"error": "who are you?"}, 401)
        if self.path == "/api/repos/create":
            return self.answer({"url": f"http://{self.headers['Host']}/me/birds"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in json.loads(body)["files"]]
            return self.answer({"files": files})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return self.answer({"commitUrl": f"http://{self.headers['Host']}/me/birds/commit/{COMMIT}", "commitOid": COMMIT})

    def do_GET(self) -> None:
        if found := re.fullmatch(rf"/me/birds/resolve/{COMMIT}/(.+)", self.path):
            body = self.files[found[1]]
            return self.reply(body, 200, {"ETag": f'"{oid(body)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})
        if self.path.startswith("/api/models/me/birds/tree/"):
            return self.answer([{"type": "file", "path": n, "size": len(b), "oid": oid(b)} for n, b in self.files.items()])
        if self.path.startswith("/api/models/me/birds"):
            named = [{"rfilename": name} for name in self.files]
            return self.answer(
                {"id": "me/birds", "modelId": "me/birds", "sha": COMMIT, "siblings": named, "tags": [], "private": False}
            )
        return self.answer({"error": "not here"}, 404)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(hub, "ENDPOINT", address)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    StandIn.files.clear()
    yield StandIn.files
    server.shutdown()
    server.server_close()


def test_a_run_goes_to_the_hub_and_comes_back(stand_in: dict[str, bytes], embeddings: Path, tmp_path: Path, capsys) -> None:
    run = torchlht.train(embeddings, epochs=1, val=0.2, quiet=True, out=tmp_path / "run")
    main(["push", str(run), "me/birds"])
    assert "torchlht.load('me/birds')" in capsys.readouterr().out
    assert {"README.md", "config.yaml", "hierarchy.json", "model.safetensors", "calibration.json"} <= set(stand_in)
    assert all(str(tmp_path).encode() not in content for content in stand_in.values()), "no place on this machine"
    card = stand_in["README.md"].decode()
    assert "library_name: torchlht" in card
    for level, accuracy in run.accuracy.items():
        assert f"| {level} | {100 * accuracy:.1f} |" in card
    x = torch.randn(3, run.model.method.in_features)
    back = torchlht.load("me/birds")
    torch.testing.assert_close(back(x).log_probs[0], run.model(x).log_probs[0])
    assert back.calibration is not None


def test_without_a_right_to_write_it_says_so(stand_in: dict[str, bytes], embeddings: Path, tmp_path: Path, monkeypatch) -> None:
    run = torchlht.train(embeddings, epochs=1, quiet=True, out=tmp_path / "run")
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(RunError, match=r"the hub did not take it .* token"):
        push(run, "me/birds")
    with pytest.raises(RunError, match="the hub did not take it"):
        push(run, "no such name")
    assert not stand_in


def test_what_the_hub_does_not_give_is_refused_in_a_sentence(stand_in: dict[str, bytes]) -> None:
    with pytest.raises(
        RunError, match=r"^you/secret: no such run directory, and no download from the hub .* is there a token\?$"
    ):
        torchlht.load("you/secret")


def test_a_hub_that_is_out_of_reach_and_a_run_without_a_tree_are_refused_in_a_sentence(
    embeddings: Path, tmp_path: Path, monkeypatch
) -> None:
    run = torchlht.train(embeddings, epochs=1, quiet=True, out=tmp_path / "run")
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    with pytest.raises(RunError, match=r"the hub did not take it .* is it within reach"):
        push(run, "me/birds")
    (run / "graph.json").write_text("{}")
    with pytest.raises(RunError, match="only runs on a tree go to the hub"):
        push(run, "me/birds")


def test_the_card_has_a_dash_where_nothing_could_be_measured() -> None:
    levels = [{"name": "family", "accuracy": 0.5, "samples": 4}, {"name": "species", "accuracy": None, "samples": 0}]
    assert figures({"levels": levels}).endswith("| family | 50.0 | 4 |\n| species | – | 0 |")
