"""What tests of `lht serve` share: runs to serve, what they should say, and servers that are up."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from PIL import Image

from conftest import write_pictures
from torchlht.answer.model import load
from torchlht.answer.named import Wanted
from torchlht.answer.plain import as_dict
from torchlht.client import Client, ServerError
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "predict.schema.json").read_text())
NOTHING = Wanted()
OPTIONS = {"backbone": "small", "epochs": 2, "batch_size": 16, "image_size": 16, "val": 0.3}


def write_runs(root: Path, names: tuple[str, ...] = ("birds", "other")) -> Path:
    """Pictures, and a run of each name; they answer differently."""
    pictures = write_pictures(root)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LHT_CACHE", str(root / "cache"))
        for seed, name in enumerate(names):
            train(TrainArgs(str(pictures), out=root / name, seed=seed, quiet=True, track=False, **OPTIONS))
    return root


def files_of(runs: Path, count: int = 4) -> list[Path]:
    return sorted((runs / "pictures").rglob("*.png"))[:: 48 // count][:count]


def expected(run: Path, files: list[Path], asked: Wanted = NOTHING, **how: Any) -> list[dict[str, Any]]:
    return [as_dict(named, asked or Wanted()) for named in load(run).predict(files, **{"top": 1, **how})]


def assert_like(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """The same but for names of files, and for the last digits, which depend on the batch."""
    jsonschema.validate(found, SCHEMA)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert json.dumps({**rounded(a), "file": ""}) == json.dumps({**rounded(b), "file": ""})


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def png(size: tuple[int, int]) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", size).save(written, "PNG")
    return written.getvalue()


# ---- servers ---------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until(true: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def is_up(port: int) -> bool:
    try:
        Client(f"http://127.0.0.1:{port}", retries=0, timeout=2).health()
    except ServerError:
        return False
    return True


@contextlib.contextmanager
def started(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`lht serve` as a process, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "torchlht", "serve", str(run), "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: is_up(port) or process.poll() is not None)
        assert process.poll() is None, "it stopped"
        yield process, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@contextlib.contextmanager
def in_a_thread(application: Any) -> Iterator[int]:
    """A server in a thread of this process, with connections as `lht serve` has them: its port."""
    import uvicorn

    from torchlht.serve.connections import Connection

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(application, port=port, http=Connection, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield port
    finally:
        server.should_exit = True
        thread.join(30)
