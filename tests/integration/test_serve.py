"""`lht serve`: the answers of `lht predict` over HTTP, refusals in words, and a new run while it serves."""

from __future__ import annotations

import base64
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serving import assert_like, expected, files_of, in_a_thread, png, rounded, write_runs
from torchlht.answer.named import Wanted
from torchlht.client import Client, ServerError
from torchlht.errors import ConfigError
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.serve import served
from torchlht.serve.app import application
from torchlht.serve.limits import Settings

testclient = pytest.importorskip("starlette.testclient", reason="pip install starlette httpx")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and two runs that answer differently, `birds` and `other`."""
    return write_runs(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[Any]:
    """A server of both runs, in this process."""
    limits = {"bytes": 200_000, "pixels": 10_000, "pictures": 5, "queue": 40, "seconds": 5.0}
    with testclient.TestClient(application(Settings((str(runs / "birds"), str(runs / "other")), **limits))) as found:
        yield found


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_a_picture_a_form_and_json_are_answered_as_lht_predict_does(client: Any, runs: Path) -> None:
    files = files_of(runs)
    wanted = expected(runs / "birds", files)
    raw = [client.post("/v1/predict", content=file.read_bytes(), headers={"Content-Type": "image/png"}) for file in files]
    assert_like([one.json()[0] for one in raw], wanted)
    form = client.post("/v1/predict", files=[("file", (file.name, file.read_bytes(), "image/png")) for file in files])
    assert_like(form.json(), wanted)
    assert [one["file"] for one in form.json()] == [file.name for file in files]
    sent = [{"data": base64.b64encode(file.read_bytes()).decode(), "name": file.name} for file in files]
    assert_like(client.post("/v1/predict", json={"pictures": sent}).json(), wanted)


def test_each_request_has_its_own_threshold_restriction_and_model(client: Any, runs: Path) -> None:
    files = files_of(runs)
    form = [("file", (file.name, file.read_bytes(), "image/png")) for file in files]
    asked = Wanted(0.5, "confidence 0.5")
    wanted = expected(runs / "birds", files, asked, top=3, only=["Auks"], exclude=["Horned Puffin"])
    options = {"confidence": "0.5", "top": "3", "only": "Auks", "exclude": "Horned Puffin"}
    assert_like(client.post("/v1/predict", files=form, data=options).json(), wanted)
    assert_like(client.post("/v1/predict", files=form, params=options).json(), wanted)
    other = expected(runs / "other", files)
    assert_like(client.post("/v1/predict?model=other", files=form).json(), other)
    assert other != expected(runs / "birds", files)


def test_it_tells_about_itself(client: Any) -> None:
    health = client.get("/healthz").json()
    assert health["status"] == "ok"
    assert list(health["models"]) == ["birds", "other"]
    described = client.get("/openapi.json").json()
    assert set(described["paths"]["/v1/predict"]["post"]["responses"]) >= {"200", "413", "422", "503", "504"}
    page = client.get("/")
    assert "POST /v1/predict" in page.text
    assert "http" not in page.text.replace("http://127.0.0.1:8000", "").replace("https", "http").lower().partition("<main>")[0]
    assert "script" not in page.text
    assert 'torchlht_requests_total{status="200"}' in client.get("/metrics").text


# ---- refusals --------------------------------------------------------------------------------------------------------


GOOD = png((20, 20))
BOMB = png((1, 1)).replace(b"\0\0\0\1\0\0\0\1", b"\0\1\0\0\0\1\0\0", 1)  # says it has 65,536 × 65,536 pixels
PICTURES = {
    "nothing of a picture": (b"no picture", "not a readable picture"),
    "cut off": (Image.new("RGB", (64, 64)).tobytes()[:10], "not a readable picture"),
    "truncated": (png((90, 90))[:-40], ""),
    "too many pixels": (png((101, 100)), "101 × 100 pixels are too many; the most that is read is 10,000"),
    "a bomb": (BOMB, ""),
    "too long": (png((505, 5)), "more than 100 times as long as wide"),
    "a program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a readable picture"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_bad_picture_is_a_422_that_says_why(client: Any, name: str) -> None:
    content, reason = PICTURES[name]
    alone = client.post("/v1/predict?name=bad.png", content=content, headers={"Content-Type": "image/png"})
    assert alone.status_code == 422
    assert alone.json()["error"].startswith("bad.png: ")
    assert reason in alone.json()["error"]
    form = [("file", ("good.png", GOOD, "image/png")), ("file", ("bad.png", content, "image/png"))]
    both = client.post("/v1/predict", files=form)
    assert [one["file"] for one in both.json()["pictures"]] == ["bad.png"]
    assert client.post("/v1/predict", content=GOOD).status_code == 200  # it goes on


REQUESTS: dict[str, tuple[dict[str, Any], int, str]] = {
    "no picture": ({"content": b""}, 400, "no picture was sent"),
    "no picture in JSON": ({"json": {"confidence": 0.5}}, 400, "no picture was sent"),
    "no base64": ({"json": {"pictures": [{"data": "§"}]}}, 400, "is not base64"),
    "no JSON": ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "is not valid JSON"),
    "an unknown option": ({"content": GOOD, "params": {"confidense": "1"}}, 400, "confidense"),
    "no share": ({"content": GOOD, "params": {"confidence": "2"}}, 400, "confidence"),
    "no number": ({"content": GOOD, "params": {"confidence": "very"}}, 400, "it must be a number"),
    "two thresholds": ({"content": GOOD, "params": {"confidence": "0.5", "risk": "0.1"}}, 400, "pass one of them"),
    "an unknown class": ({"content": GOOD, "params": {"only": "Swan"}}, 400, "no class has that name"),
    "a file of the server": ({"content": GOOD, "params": {"only": "@/etc/passwd"}}, 400, "may not be files"),
    "an unknown model": ({"content": GOOD, "params": {"model": "brids"}}, 400, "did you mean birds?"),
    "an unknown rule": ({"content": GOOD, "params": {"rule": "dice"}}, 400, "unknown rule"),
    "another kind": ({"content": b"x", "headers": {"Content-Type": "text/html"}}, 415, "text/html is not read"),
    "too many bytes": ({"content": bytes(200_001)}, 413, "the most that is read is 200,000 bytes"),
    "bytes without a length": ({"content": iter([bytes(150_000)] * 3)}, 413, "the most that is read is 200,000 bytes"),
    "six pictures": ({"json": {"pictures": [{"data": "eA=="}] * 6}}, 413, "the most that is answered is 5"),
    "1,000 files": ({"files": [("f", ("a.png", b"", "image/png"))] * 1000}, 413, "Too many files"),
    "a broken form": ({"content": b"--x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "the form cannot be read"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_wrong_request_is_refused_in_one_sentence(client: Any, name: str) -> None:
    request, status, words = REQUESTS[name]
    found = client.post("/v1/predict", **request)
    assert (found.status_code, words in found.json()["error"]) == (status, True), found.json()
    assert client.post("/v1/predict", content=GOOD).status_code == 200


def test_a_full_queue_sheds_and_a_slow_answer_times_out(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, held = client.app.state.server, threading.Event()
    model = server.models.get(None)
    look = type(model).look
    monkeypatch.setattr(type(model), "look", lambda self, x: (held.wait(20), look(self, x))[1])
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(client.post, "/v1/predict", content=GOOD) for _ in range(60)]
        full = [one.result() for one in waiting[:0]]
        deadline = time.monotonic() + 20
        while server.waiting < 40 and time.monotonic() < deadline:
            time.sleep(0.02)
        shed = client.post("/v1/predict", content=GOOD)
        assert shed.status_code == 503
        assert shed.headers["Retry-After"] == "1"
        assert "ask again in a moment" in shed.json()["error"]
        assert client.get("/healthz").status_code == 200  # it can still be asked how it is
        statuses = sorted(one.result().status_code for one in waiting)
    assert full == []
    assert statuses == [503] * 20 + [504] * 40  # the network was held for longer than the 5 s that a request may take
    held.set()
    deadline = time.monotonic() + 20
    while (again := client.post("/v1/predict", content=GOOD)).status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert again.status_code == 200
    assert server.waiting == 0


def test_runs_on_features_and_of_one_name_are_refused(tmp_path: Path, runs: Path, embeddings: Path) -> None:
    train(TrainArgs(str(embeddings), out=tmp_path / "flat", method="flat", epochs=1, quiet=True, track=False))
    with pytest.raises(ConfigError, match="takes features"):
        application(Settings((str(tmp_path / "flat"),)))
    with pytest.raises(ConfigError, match="have the same name"):
        application(Settings((str(runs / "birds"), str(runs / "birds"))))


def test_a_run_replaced_while_serving_is_read_again_and_nothing_is_lost(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "LOOK", 0.05)
    place, (file,) = tmp_path / "live", files_of(runs, 1)
    shutil.copytree(runs / "birds", place)
    old, new = (expected(runs / name, [file])[0] for name in ("birds", "other"))
    assert rounded(old)["levels"] != rounded(new)["levels"]
    found: list[Any] = []
    with testclient.TestClient(application(Settings((str(place),)))) as client:

        def ask(until: float) -> None:
            while time.monotonic() < until:
                found.append(client.post("/v1/predict", content=file.read_bytes()))

        def wait_for(levels: Any) -> None:
            for _ in range(400):
                if rounded(client.post("/v1/predict", content=file.read_bytes()).json()[0])["levels"] == rounded(levels):
                    return
                time.sleep(0.02)
            raise AssertionError("never read again")

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, time.monotonic() + 3) for _ in range(4)]
            for name in ("calibration.json", "novelty.safetensors", "model.safetensors"):
                shutil.copy(runs / "other" / name, place / f"{name}.new")
                (place / f"{name}.new").replace(place / name)
            wait_for(new["levels"])
            for one in asking:
                one.result()
        (place / "model.safetensors").write_bytes(b"damaged")
        for _ in range(400):
            if client.app.state.server.models.failures:
                break
            time.sleep(0.02)
        assert client.app.state.server.models.failures == 1
        wait_for(new["levels"])  # the last good one goes on
    assert {one.status_code for one in found} == {200}
    seen = {json.dumps(rounded(one.json()[0])["levels"]) for one in found}
    assert seen == {json.dumps(rounded(one)["levels"]) for one in (old, new)}  # nothing between them
    assert len(found) > 10


def test_the_client_says_what_the_server_says(client: Any, runs: Path) -> None:
    with in_a_thread(client.app) as port:
        says_what_the_server_says(Client(f"http://127.0.0.1:{port}"), runs)


def says_what_the_server_says(client: Client, runs: Path) -> None:
    with pytest.raises(ServerError, match="not a readable picture") as refused:
        client.predict(GOOD, b"no picture")
    assert refused.value.status == 422
    assert refused.value.pictures == [{"file": "picture 1", "reason": "not a readable picture"}]
    with pytest.raises(ServerError, match="no class has that name"):
        client.predict(GOOD, only=["Swan"])
    with pytest.raises(ServerError, match="no answer"):
        Client("http://127.0.0.1:9", retries=1).predict(GOOD)
    with pytest.raises(ServerError, match="begins with http"):
        Client("file:///etc/passwd")
    found = client.predict(*files_of(runs), confidence=0.2, top=2)
    assert [one["answer"]["promise"] for one in found] == ["confidence 0.2"] * 4
    assert np.isclose(found[0]["answer"]["threshold"], 0.2)
