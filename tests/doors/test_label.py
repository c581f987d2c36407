"""The server of lht label: who may ask, what leaves it, and what it makes of names with markup in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

pytest.importorskip("starlette", reason="pip install 'torchlht[label]'")

from torchlht.cli import main
from torchlht.errors import ConfigError
from torchlht.serve.label.app import create_app
from torchlht.serve.label.guards import POLICY, WRONG, Doors, Guards, Password
from torchlht.serve.label.reading import Source
from torchlht.serve.label.serving import Wishes, desk_for, serve

MARKUP = "<img src=x onerror=alert(1)>"
OWN = "127.0.0.1:8000"


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks an application without a network."""

    def __init__(self, app: Guards) -> None:
        self.app = app

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Said:
        known = {
            "host": OWN,
            "authorization": f"Bearer {self.app.doors.token}",
            "origin": f"http://{OWN}" if body is not None else None,
        }
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        known["content-length"] = str(len(content)) if method == "POST" else None
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        route, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": route, "raw_path": route.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in known.items() if value is not None],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        }  # fmt: skip
        got: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            got.append(message)

        asyncio.run(self.app(scope, receive, send))
        told = {name.decode(): value.decode() for name, value in got[0]["headers"]}
        return Said(got[0]["status"], told, b"".join(one.get("body", b"") for one in got[1:]))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    rows = ["path,family,species"]
    for i, name in enumerate(["Ivory Gull", "Puffin", MARKUP, ""]):
        Image.new("RGB", (40, 30), (60 * i, 90, 30)).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{'Gulls' if i == 0 else 'Auks'},{name}")
    (tmp_path / "secret.txt").write_text("what nobody may read")
    (tmp_path / "birds.csv").write_text("\n".join(rows) + "\n")
    with desk_for(Source(str(tmp_path / "birds.csv")), Wishes(learn=False, blind=0.0)) as desk:
        yield Client(create_app(desk, Doors("127.0.0.1", 8000), "ann"))


def answer(client: Client, i: int = 3, version: int = 0, **headers: str | None) -> Said:
    node = client.ask("GET", "/api/tree").json()["names"].index("Puffin")
    return client.ask("POST", "/api/answer", {"samples": [[i, version]], "what": "label", "node": node, "by": "ann"}, **headers)


def test_an_answer_is_on_disk_when_it_is_acknowledged(client: Client) -> None:
    said = answer(client)
    assert said.status == 200
    assert said.json()["samples"][0]["version"] == said.json()["event"] == 1
    assert b'"samples":["3.png"]' in client.app.app.state.desk.journal.path.read_bytes()  # type: ignore[attr-defined]
    assert answer(client).status == 409
    assert answer(client, version=1).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1:8001", "127.0.0.1", "", None])
def test_a_wrong_host_is_turned_away(client: Client, host: str | None) -> None:
    assert client.ask("GET", "/", host=host).status == 421
    assert answer(client, host=host).status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:8001"])
def test_another_origin_is_turned_away(client: Client, origin: str) -> None:
    for path in ("/", "/api/start", "/picture/0"):
        assert client.ask("GET", path, origin=origin).status == 403
    assert answer(client, origin=origin).status == 403
    cookie = f"{client.app.doors.cookie}={client.app.doors.token}"
    assert answer(client, origin=None, authorization=None, cookie=cookie).status == 403  # a form of another page
    assert client.ask("GET", "/api/start", authorization=None, cookie=cookie, sec_fetch_site="cross-site").status == 403
    assert client.ask("GET", "/api/start", authorization=None, cookie=cookie, sec_fetch_site="same-origin").status == 200


ROUTES = ["/api/start", "/api/tree", "/api/queue?name=all", "/api/sample/0", "/api/changes", "/picture/0", "/page/page.js", "/"]


@pytest.mark.parametrize("path", ROUTES)
def test_without_the_token_nothing_is_told(client: Client, path: str) -> None:
    for given in (None, "Bearer", "Bearer wrong", f"Basic {client.app.doors.token}"):
        assert client.ask("GET", path, authorization=given).status == 403
    assert client.ask("GET", path, authorization=None, cookie=f"{client.app.doors.cookie}=wrong").status == 403
    assert client.ask("GET", "/?token=wrong", authorization=None).status == 403


def test_the_token_in_the_address_becomes_a_cookie_that_only_we_get(client: Client) -> None:
    said = client.ask("GET", f"/?token={client.app.doors.token}", authorization=None)
    assert (said.status, said.headers["location"]) == (303, "/")
    assert "httponly" in said.headers["set-cookie"].lower()
    assert "samesite=strict" in said.headers["set-cookie"].lower()
    cookie = said.headers["set-cookie"].partition(";")[0]
    assert client.ask("GET", "/api/start", authorization=None, cookie=cookie).status == 200


UP = ["../secret.txt", "..%2fsecret.txt", "....//secret.txt", "/etc/passwd", "%2e%2e/secret.txt", "..\\secret.txt"]


@pytest.mark.parametrize("up", UP)
def test_no_path_leaves_the_dataset(client: Client, up: str) -> None:
    paths = [f"/picture/{up}", f"/page/{up}", f"/api/sample/{up}", f"/{up}", f"/picture/0?size={up}", f"/api/tree?since={up}"]
    paths += [
        f"/api/queue?name={up}",
        f"/api/queue?name=all&at={up}",
        f"/api/queue?name=class&node={up}",
        f"/api/changes?since={up}",
    ]
    for path in [*paths, f"/api/queue?name=named&text={up}"]:
        said = client.ask("GET", path)
        assert b"nobody may" not in said.body, path
        assert b"root:" not in said.body
        assert said.status in (400, 404, 405) or (said.status == 200 and said.json()["samples"] == []), path
    assert client.ask("POST", "/api/answer", {"samples": [[up, 0]], "what": "label", "node": 0}).status == 400
    assert client.ask("POST", "/api/answer", {"samples": [[0, 0]], "what": up}).status == 400
    assert client.ask("POST", "/api/class", {"parent": up, "name": "x"}).status == 400
    made = client.ask("POST", "/api/class", {"parent": 0, "name": up, "by": up})
    assert made.status == 200  # a strange name, but only a name
    assert client.ask("GET", "/api/tree").json()["names"][made.json()["node"]] == up


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", {"samples": [], "what": "label", "node": 0}, {"samples": [[99, 0]], "what": "label", "node": 0},
     {"samples": [[0, 0]], "what": "label", "node": 99}, {"samples": [[0, 0], [0, 0]], "what": "cant_tell"},
     {"samples": [[0, 0]], "what": "label", "node": None}, {"samples": [[0, 0]], "what": "label", "node": 0, "more": 1},
     {"samples": [[-1, 0]], "what": "cant_tell"}, {"samples": [[0, 0]], "what": "cant_tell", "by": "x" * 500}],
)  # fmt: skip
def test_what_is_not_an_answer_is_refused_and_not_written(client: Client, body: Any) -> None:
    before = client.app.app.state.desk.journal.path.read_bytes()  # type: ignore[attr-defined]
    said = client.ask("POST", "/api/answer", body)
    assert said.status == 400
    assert said.json()["error"]
    assert client.app.app.state.desk.journal.path.read_bytes() == before  # type: ignore[attr-defined]


def test_bodies_are_bounded(client: Client) -> None:
    assert client.ask("POST", "/api/answer", b"x", content_length=str(2**21)).status == 413
    assert client.ask("POST", "/api/answer", b"x", content_length=None).status == 411


def test_names_are_text_and_the_browser_is_kept_in(client: Client) -> None:
    said = client.ask("GET", "/")
    assert said.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert said.headers["x-content-type-options"] == "nosniff"
    assert MARKUP.encode() not in said.body
    tree = client.ask("GET", "/api/tree")
    assert MARKUP in tree.json()["names"]
    assert tree.headers["content-type"] == "application/json"
    page = Path(__file__).parents[2] / "src/torchlht/serve/label/page"
    for file in page.glob("*.js"):
        text = file.read_text()
        assert not any(word in text for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")), (
            file
        )
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


def test_pictures_are_encoded_anew(client: Client) -> None:
    said = client.ask("GET", "/picture/0?size=large")
    assert (said.status, said.headers["content-type"]) == (200, "image/jpeg")
    assert said.body.startswith(b"\xff\xd8")
    assert client.ask("GET", "/picture/4").status == 404
    picture = client.app.app.state.desk.samples.images[1].file  # type: ignore[attr-defined]
    Path(picture).write_text("<script>alert(1)</script>")
    broken = client.ask("GET", "/picture/1")
    assert broken.status == 404
    assert b"<script>" not in broken.body


def test_a_password_for_others(client: Client) -> None:
    doors = Doors("0.0.0.0", 8000, Password("correct horse"))
    asked = Client(create_app(client.app.app.state.desk, doors))  # type: ignore[attr-defined]
    assert asked.ask("GET", "/", authorization=None).headers["location"] == "/login"
    assert asked.ask("GET", "/login", authorization=None).status == 200
    assert asked.ask("GET", "/api/start", authorization=None).status == 403
    assert (
        asked.ask("POST", "/login", {"password": "correct horse"}, authorization=None, origin="http://evil.example").status
        == 403
    )
    right = asked.ask("POST", "/login", {"password": "correct horse"}, authorization=None)
    assert right.status == 200
    cookie = right.headers["set-cookie"].partition(";")[0]
    assert asked.ask("GET", "/api/start", authorization=None, cookie=cookie).status == 200
    assert asked.ask("GET", "/api/start", host="evil.example:8000", cookie=cookie).status == 421
    assert asked.ask("POST", "/login", {"password": "wrong"}, authorization=None).status == 403
    assert client.ask("POST", "/login", {"password": ""}).status == 404
    password = Password("correct horse")
    assert [password.fits("wrong") for _ in range(WRONG)] == [False] * WRONG
    assert not password.fits("correct horse")  # for a minute


def test_a_host_without_a_password_and_wrong_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="needs a password"):
        serve(Source("demo"), Wishes(), host="0.0.0.0")
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "birds.csv").write_text("path,a,b\nx.png,A,x\ny.png,B,y\n")
    monkeypatch.chdir(tmp_path)
    data = str(tmp_path / "birds.csv")
    for words, said in (
        (["--host", "0.0.0.0", "--password-file", "short"], "at least 8"),
        (["--port", "70000"], "--port is 70000"),
        (["--audit", "nowhere"], "holds no labels.csv"),
        (["--unlabelled"], "--unlabelled needs the tree"),
        (["--blind", "1"], "--blind is 1"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["label", data, "--no-browser", *words])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
