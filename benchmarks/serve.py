"""`lht serve` under load, on the loopback address, against a plain Starlette handler on the same ONNX file.

    python benchmarks/serve.py RUN.onnx PICTURES [--seconds 10] [--clients 1 8 64] [--workers 2]

The rivals are what one writes in ten minutes: a handler that decodes the picture, prepares it and calls the ONNX session,
in the handler itself (`plain`) or in a thread of Starlette's pool (`plain, threads`); onnxruntime has its default threads.
All have the same preparation and send the same JSON. Clients are threads of one other process that ask in a closed loop, with
connections that stay open, for a bounded time. Overload is three times as many clients as the queue has room for.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

PLAIN = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route
from torchlht.answer.exported.read import OnnxModel
from torchlht.answer.plain import as_dict
from torchlht.serve.app import as_json, prepared
from torchlht.data.preparing import normalise
model = OnnxModel.read(sys.argv[1])
def answer(body):
    x = normalise(prepared("picture", body, model.preprocess, 2**26)[None], model.preprocess)
    return [as_dict(one, model.wanted) for one in model.named(model.look(x), ["picture"], 1)]
async def predict(request):
    body = await request.body()
    return as_json(await run_in_threadpool(answer, body) if sys.argv[3] == "threads" else answer(body))
async def health(request):
    return as_json("ok")
app = Starlette(routes=[Route("/v1/predict", predict, methods=["POST"]), Route("/healthz", health)])
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server and wait until it is up."""
    started = subprocess.Popen(command, start_new_session=True)
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            return started
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("never up")


def load(port: int, bodies: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """A closed loop of so many clients: answers and refusals a second, and quantiles of the seconds of an answer."""
    found: list[tuple[int, float]] = []
    stop = time.monotonic() + seconds

    def ask(i: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < stop:
            began = time.perf_counter()
            connection.request("POST", "/v1/predict", bodies[i % len(bodies)], {"Content-Type": "image/jpeg"})
            response = connection.getresponse()
            response.read()
            found.append((response.status, time.perf_counter() - began))
            i += 1
            if response.status == 503:
                time.sleep(0.2)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    times = [taken for status, taken in found if status == 200]
    return {
        "answers": len(times) / seconds,
        "shed": sum(status == 503 for status, _ in found) / seconds,
        "other": sum(status not in (200, 503) for status, _ in found),
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
    }


def memory(pid: int) -> float:
    """Megabytes of a process and those that it started."""
    text = subprocess.run(["ps", "-o", "rss=", "-g", str(pid)], capture_output=True, text=True, check=True).stdout
    return sum(map(int, text.split())) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--long", type=float, default=0, help="seconds of 8 clients at the end, with memory before and after")
    args = parser.parse_args()
    bodies = [file.read_bytes() for file in sorted(args.pictures.rglob("*.jpg"))[::97][:100]]
    print(f"{len(bodies)} pictures, {args.seconds:g} s each, {os.cpu_count()} cores\n")
    print("| server | clients | answers/s | shed/s | p50 s | p99 s | MB |\n|---|---:|---:|---:|---:|---:|---:|")
    serve = [sys.executable, "-m", "torchlht", "serve", args.run, "--port"]
    cases = {
        "plain": lambda port: [sys.executable, "-c", PLAIN, args.run, str(port), "alone"],
        "plain, threads": lambda port: [sys.executable, "-c", PLAIN, args.run, str(port), "threads"],
        "lht serve": lambda port: [*serve, str(port), "--workers", "1"],
        f"lht serve --workers {args.workers}": lambda port: [*serve, str(port), "--workers", str(args.workers)],
        "lht serve --queue 16": lambda port: [*serve, str(port), "--queue", "16"],
    }
    for name, command in cases.items():
        port = free_port()
        started = start(command(port), port)
        try:
            load(port, bodies, 2, 2)  # warm up
            for clients in [48] if "queue" in name else args.clients:
                line(name, clients, load(port, bodies, clients, args.seconds), memory(started.pid))
            if args.long and name == "lht serve":
                for _ in range(5):
                    line(f"{name}, {args.long / 5:g} s more", 8, load(port, bodies, 8, args.long / 5), memory(started.pid))
        finally:
            os.killpg(started.pid, 15)
            started.wait(60)


def line(name: str, clients: int, found: dict[str, float], megabytes: float) -> None:
    assert not found["other"], found
    figures = f"{found['answers']:.1f} | {found['shed']:.1f} | {found['p50']:.3f} | {found['p99']:.3f} | {megabytes:.0f}"
    print(f"| {name} | {clients} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
