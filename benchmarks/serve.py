"""`lht serve` under load, on the loopback address, against plain Starlette handlers on the same ONNX file.

    python benchmarks/serve.py RUN.onnx PICTURES [--rounds 5] [--seconds 5] [--clients 1 8 64] [--soak 600]

The rivals are what one writes in ten minutes: a handler that decodes the picture, prepares it and calls the ONNX session,
in the handler itself (`plain`) or in a thread of Starlette's pool (`plain, threads`); onnxruntime has its default threads.
All have the same preparation, send the same JSON, and are served by uvicorn with the same parser. All servers are up all the
time and asked in turns, in rounds, so that whatever else the machine does meets them alike; ratios are taken within a round.
Clients ask in a closed loop, for a bounded time, on connections that stay open. Overload comes at three times the rate that
the server managed just before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

PLAIN = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route
from torchlht.answer.exported.read import OnnxModel
from torchlht.answer.plain import as_dict
from torchlht.serve.answering import prepared
from torchlht.serve.app import as_json
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
Figures = dict[str, float]


# ---- clients ---------------------------------------------------------------------------------------------------------


class Asking(asyncio.Protocol):
    """A connection that asks again as soon as it is answered; after a 503 it waits. With a pace, it asks that often."""

    def __init__(self, requests: list[bytes], turn: int, stop: float, pace: float) -> None:
        self.requests, self.turn, self.stop, self.pace = requests, turn, stop, pace
        self.found: list[tuple[int, float]] = []
        self.loop = asyncio.get_running_loop()
        self.done, self.got, self.due = self.loop.create_future(), b"", self.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.loop.call_later(self.pace * np.random.default_rng(self.turn).random(), self.ask)

    def ask(self) -> None:
        if time.monotonic() > self.stop:
            self.transport.close()
            return
        self.began, self.due = time.perf_counter(), self.loop.time() + self.pace
        self.transport.write(self.requests[self.turn % len(self.requests)])
        self.turn += 1

    def data_received(self, data: bytes) -> None:
        self.got += data
        head, end, body = self.got.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].split()[0]):
            return
        status, self.got = int(head[9:12]), b""
        self.found.append((status, time.perf_counter() - self.began))
        if self.pace:
            self.loop.call_at(max(self.due, self.loop.time()), self.ask)
        elif status == 503:
            self.loop.call_later(0.2, self.ask)
        else:
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        lost = time.monotonic() <= self.stop
        self.done.set_exception(RuntimeError(f"the server hung up: {error}")) if lost else self.done.set_result(None)


def load(port: int, requests: list[bytes], clients: int, seconds: float, rate: float = 0) -> Figures:
    """So many clients, at so many requests a second if a rate is given: answers and refusals a second, and quantiles of the
    seconds of an answer."""

    async def ask() -> list[tuple[int, float]]:
        nonlocal seconds
        began, loop = time.monotonic(), asyncio.get_running_loop()
        stop = began + seconds
        pace = clients / rate if rate else 0.0
        asking = [Asking(requests, i * 7, stop, pace) for i in range(clients)]
        for one in asking:
            await loop.create_connection(lambda one=one: one, "127.0.0.1", port)  # type: ignore[misc]
        await asyncio.wait_for(asyncio.gather(*(one.done for one in asking)), seconds + 60)
        seconds = time.monotonic() - began  # the last answers come after the end
        return [found for one in asking for found in one.found]

    found = asyncio.run(ask())
    times = [taken for status, taken in found if status == 200]
    other = sum(status not in (200, 503) for status, _ in found)
    if other:
        raise RuntimeError(f"{other} answers were neither 200 nor 503")
    return {
        "answers": len(times) / seconds,
        "shed": sum(status == 503 for status, _ in found) / seconds,
        "p50": 1e3 * float(np.quantile(times, 0.5)),
        "p99": 1e3 * float(np.quantile(times, 0.99)),
        "count": len(times),
    }


# ---- servers ---------------------------------------------------------------------------------------------------------


@contextmanager
def running(command: Callable[[int], list[str]], requests: list[bytes]) -> Iterator[tuple[int, int]]:
    """A server that is up and warm: its port and its process."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    started = subprocess.Popen(command(port), start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                load(port, requests, 2, 2)
                break
            except OSError:
                time.sleep(0.1)
        yield port, started.pid
    finally:
        os.killpg(started.pid, 15)
        started.wait(60)


def memory(pid: int) -> float:
    """Megabytes of a process and those that it started."""
    text = subprocess.run(["ps", "-o", "rss=", "-g", str(pid)], capture_output=True, text=True, check=True).stdout
    return sum(map(int, text.split())) / 1e3


def seconds_of(pid: int) -> float:
    """Seconds that the cores have spent on a process and those that it started."""
    text = subprocess.run(["ps", "-o", "pid=", "-g", str(pid)], capture_output=True, text=True, check=True).stdout
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in text.split()]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def commands(run: str, workers: int) -> dict[str, Callable[[int], list[str]]]:
    serve = [sys.executable, "-m", "torchlht", "serve", run, "--port"]
    return {
        "plain": lambda port: [sys.executable, "-c", PLAIN, run, str(port), "alone"],
        "plain, threads": lambda port: [sys.executable, "-c", PLAIN, run, str(port), "threads"],
        "lht serve": lambda port: [*serve, str(port)],
        f"lht serve --workers {workers}": lambda port: [*serve, str(port), "--workers", str(workers)],
    }


# ---- what is measured ------------------------------------------------------------------------------------------------


def compare(args: argparse.Namespace, requests: list[bytes]) -> None:
    """Every server with every number of clients, in rounds."""
    with ExitStack() as stack:
        cases = {name: one for name, one in commands(args.run, args.workers).items() if not args.only or name in args.only}
        up = {name: stack.enter_context(running(command, requests)) for name, command in cases.items()}
        print("| clients | server | answers/s | to plain | to plain, threads | p50 ms | p99 ms | cores' ms an answer | MB |")
        print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
        for clients in args.clients:
            rounds: list[dict[str, Figures]] = []
            for turn in range(args.rounds):
                order = list(up)[turn % len(up) :] + list(up)[: turn % len(up)]
                rounds.append({name: spent(up[name], requests, clients, args.seconds) for name in order})
            for name, (_, pid) in up.items():
                print(f"| {clients} | {name} | {row(rounds, name)} | {memory(pid):.0f} |", flush=True)


def spent(server: tuple[int, int], requests: list[bytes], clients: int, seconds: float) -> Figures:
    """`load` with the milliseconds that the cores spend on an answer."""
    before = seconds_of(server[1])
    found = load(server[0], requests, clients, seconds)
    return {**found, "cost": 1e3 * (seconds_of(server[1]) - before) / found["count"]}


def row(rounds: list[dict[str, Figures]], name: str) -> str:
    def ratio(other: str) -> str:
        if other not in rounds[0]:
            return ""
        found = [one[name]["answers"] / one[other]["answers"] for one in rounds]
        return f"{np.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"

    answers, p50, p99, cost = (
        float(np.median([one[name][key] for one in rounds])) for key in ("answers", "p50", "p99", "cost")
    )
    return f"{answers:.0f} | {ratio('plain')} | {ratio('plain, threads')} | {p50:.0f} | {p99:.0f} | {cost:.1f}"


def overload(args: argparse.Namespace, requests: list[bytes]) -> None:
    """Three times the rate that the server managed just before, with a queue of 64."""
    serve = [sys.executable, "-m", "torchlht", "serve", args.run, "--queue", "64", "--port"]
    rounds = []
    with running(lambda port: [*serve, str(port)], requests) as (port, _):
        for _ in range(args.rounds):
            full = load(port, requests, 64, args.seconds)
            rounds.append((full, load(port, requests, 192, args.seconds, rate=3 * full["answers"])))
    print("\n| asked | answers/s | shed/s | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|")
    for i, name in enumerate(("64 clients, closed loop", "3 × that rate")):
        middle = (np.median([one[i][key] for one in rounds]) for key in ("answers", "shed", "p50", "p99"))
        print(f"| {name} | {' | '.join(f'{value:.0f}' for value in middle)} |")
    for key in ("answers", "p99"):
        ratios = [over[key] / full[key] for full, over in rounds]
        print(f"\n{key}, overloaded to full: {np.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)


def soak(args: argparse.Namespace, requests: list[bytes]) -> None:
    """Eight clients for long."""
    print("\n| seconds | answers/s | p50 ms | p99 ms | MB |\n|---:|---:|---:|---:|---:|")
    with running(commands(args.run, args.workers)["lht serve"], requests) as (port, pid):
        for i in range(10):
            one = load(port, requests, 8, args.soak / 10)
            figures = f"{one['answers']:.0f} | {one['p50']:.0f} | {one['p99']:.0f} | {memory(pid):.1f}"
            print(f"| {args.soak * (i + 1) / 10:g} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each server in each round")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", help="names of servers to compare")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--soak", type=float, default=0, help="seconds of eight clients, with memory on the way")
    args = parser.parse_args()
    bodies = [file.read_bytes() for file in sorted(args.pictures.rglob("*.jpg"))[::97][:100]]
    head = "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n"
    requests = [head.format(len(body)).encode() + body for body in bodies]
    print(f"{len(bodies)} pictures, {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores\n")
    if args.clients:
        compare(args, requests)
    if args.overload:
        overload(args, requests)
    if args.soak:
        soak(args, requests)


if __name__ == "__main__":
    main()
