"""`lht serve` with killed workers, slow and half-gone clients, hostile pictures and a proxy: nothing wrong, nothing lost."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serving import expected, files_of, free_port, in_a_thread, is_up, png, rounded, started, wait_until, write_runs
from torchlht.client import Client, ServerError
from torchlht.serve.limits import Settings

pytest.importorskip("uvicorn", reason="pip install 'torchlht[serve]'")
from torchlht.serve.app import application

GOOD = png((20, 20))
HEAD = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD)}\r\nContent-Type: image/png\r\n\r\n".encode()
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
EXAMPLES = Path(__file__).parents[2] / "examples" / "serve"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `write_runs`."""
    return write_runs(tmp_path_factory.mktemp("faults"), ("birds",))


class Known:
    """Pictures with what should be said about them."""

    def __init__(self, runs: Path) -> None:
        self.files = files_of(runs, 12)
        self.levels = [rounded(one)["levels"] for one in expected(runs / "birds", self.files)]

    def is_right(self, client: Client, i: int) -> bool:
        """Ask about a picture: whether the answer is the right one."""
        return bool(rounded(client.predict(self.files[i % 12])[0])["levels"] == self.levels[i % 12])


@pytest.fixture(scope="module")
def known(runs: Path) -> Known:
    return Known(runs)


# ---- clients that are slow, leave, or send what nobody should ----------------------------------------------------------


@pytest.fixture(scope="module")
def port(runs: Path) -> Iterator[int]:
    """A server that waits for four seconds at most."""
    with in_a_thread(application(Settings((str(runs / "birds"),), seconds=4.0, pixels=2**20, threads=2))) as found:
        yield found


def connected(port: int, content: bytes) -> socket.socket:
    """A connection on which this was sent."""
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.sendall(content)
    return one


def test_slow_clients_hold_up_nobody_and_are_told(port: int, known: Known) -> None:
    heads = [connected(port, HEAD[:40]) for _ in range(20)]
    bodies = [connected(port, HEAD + GOOD[:20]) for _ in range(20)]
    client = Client(f"http://127.0.0.1:{port}", retries=0)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda i: known.is_right(client, i), range(24)))
    assert client.health()["waiting"] == 0
    assert all(b" 408 " in one.recv(1000) for one in bodies)
    for one in heads:  # they may still make up their mind
        one.sendall(HEAD[40:] + GOOD)
        assert b"200 OK" in one.recv(1000)
    for one in (*heads, *bodies):
        one.close()


def test_a_client_that_only_listens_any_more_is_answered_and_one_that_left_disturbs_nobody(port: int, known: Known) -> None:
    client = Client(f"http://127.0.0.1:{port}", retries=0)
    for cut in (20, len(HEAD) // 2, len(HEAD), len(HEAD) + 20, len(HEAD + GOOD)):
        connected(port, (HEAD + GOOD)[:cut]).close()
    half = connected(port, HEAD + GOOD)
    half.shutdown(socket.SHUT_WR)
    said = b""
    while part := half.recv(2**16):
        said += part
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert json.loads(body)[0]["answer"]
    half.close()
    assert known.is_right(client, 0)
    wait_until(lambda: client.health()["waiting"] == 0)


def hostile(count: int) -> Iterator[bytes]:
    """Pictures that are cut off, have wrong bytes, or say that they are huge."""
    rng, wholes = np.random.default_rng(0), []
    noise = Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8))
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        written = io.BytesIO()
        noise.save(written, kind)
        wholes.append(written.getvalue())
    for i in range(count):
        content = bytearray(wholes[i % len(wholes)])
        for _ in range(rng.integers(1, 20)):
            content[rng.integers(len(content))] = rng.integers(256)
        yield bytes(content[: rng.integers(1, len(content))] if i % 3 == 0 else content)
    yield png((1, 1)).replace(b"\0\0\0\1\0\0\0\1", b"\0\1\0\0\0\1\0\0", 1)  # a bomb: it says 65,536 × 65,536 pixels
    yield png((1025, 1024))


def test_hostile_pictures_are_refused_and_change_no_answer_beside_them(port: int, known: Known) -> None:
    client = Client(f"http://127.0.0.1:{port}", retries=0)

    def status(content: bytes) -> int:
        try:
            client.predict(content)
        except ServerError as error:
            return error.status if error.pictures else 0
        return 200  # what is left of it can be read

    with ThreadPoolExecutor(8) as pool:
        right = [pool.submit(known.is_right, client, i) for i in range(60)]
        found = list(pool.map(status, hostile(300)))
        assert all(one.result() for one in right)
    assert set(found) <= {200, 422}
    assert found.count(422) > 100


def test_ten_thousand_files_are_refused_and_their_server_goes_on(port: int, known: Known) -> None:
    part = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n%s\r\n' % GOOD
    )
    sent = json.dumps({"pictures": [{"data": "eA=="}] * 10_000})
    for kind, body in (("multipart/form-data; boundary=x", part * 10_000 + b"--x--\r\n"), ("application/json", sent.encode())):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/predict", body, {"Content-Type": kind})
        response = connection.getresponse()
        assert response.status == 413
        assert "64" in json.load(response)["error"]
        connection.close()
    assert known.is_right(Client(f"http://127.0.0.1:{port}", retries=0), 1)


# ---- killed workers and replicas -------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=True
    ).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]


def test_a_killed_worker_loses_and_confuses_nothing_and_a_stop_answers_what_was_begun(runs: Path, known: Known) -> None:
    with started(runs / "birds", "--workers", "2", "--timeout", "20") as (process, port):
        client = Client(f"http://127.0.0.1:{port}", retries=10)
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(known.is_right, client, i) for i in range(200)]
            wait_until(lambda: sum(one.done() for one in asking) > 20)
            os.kill(children(process.pid)[0], signal.SIGKILL)
            assert all(one.result() for one in asking)
        wait_until(lambda: len(children(process.pid)) == 2)  # it was started again
        late = connected(port, HEAD + GOOD[:20])
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        late.sendall(GOOD[20:])
        assert b"200 OK" in late.recv(1000)
        late.close()
        assert process.wait(30) in (0, -signal.SIGTERM)


@contextlib.contextmanager
def proxied(folder: Path, one: int, two: int) -> Iterator[int]:
    """nginx with the file of `examples/serve` in front of two servers: its port."""
    assert NGINX is not None
    port, text = free_port(), (EXAMPLES / "nginx.conf").read_text()
    for name, address in (("one:8000", one), ("two:8000", two)):
        assert name in text
        text = text.replace(name, f"127.0.0.1:{address}")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    whole = (
        f"pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {places} include site.conf; }}"
    )
    (folder / "site.conf").write_text(text.replace("listen 8080", f"listen 127.0.0.1:{port}"))
    (folder / "nginx.conf").write_text(whole)
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"])
    try:
        wait_until(lambda: is_up(port))
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.skipif(NGINX is None, reason="apt install nginx-light")
def test_a_replica_killed_behind_the_proxy_is_not_noticed(runs: Path, known: Known, tmp_path: Path) -> None:
    with (
        started(runs / "birds") as (first, one),
        started(runs / "birds") as (_, two),
        proxied(tmp_path, one, two) as port,
    ):
        client: Any = Client(f"http://127.0.0.1:{port}", retries=0)  # the proxy asks again, not the client
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(known.is_right, client, i) for i in range(200)]
            wait_until(lambda: sum(one.done() for one in asking) > 20)
            os.kill(first.pid, signal.SIGKILL)
            assert all(one.result() for one in asking)
        first.wait(10)
        assert known.is_right(client, 3)
