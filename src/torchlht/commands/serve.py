"""`lht serve`."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from dataclasses import dataclass
from typing import Annotated

from torchlht import console
from torchlht.commands.base import ModelPlace, command
from torchlht.data.options import Options, Word
from torchlht.doors import Count, Parallel, Port, Positive
from torchlht.errors import ConfigError, MissingExtraError


@dataclass(frozen=True)
class ServeArgs(Options):
    """Serve a run over HTTP."""

    runs: Annotated[list[ModelPlace], Word("RUN…")]
    """Run directories, or files written by `lht export --to onnx`, which need less memory. The first answers unless a request
    names another."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine, so that others can reach it."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    workers: Parallel = 1
    """How many processes answer; one that dies is started again."""
    batch: Count = 4
    """Most pictures that the network sees at a time. Requests that wait are computed together; on a CPU few at a time are
    fastest."""
    latency: Positive = 0.5
    """Most seconds that a batch may take, judged by the batches before it."""
    queue: Count = 256
    """Most pictures that wait, in each process; more are answered 503, ask again later."""
    max_bytes: Count = 2**26
    """Most bytes of a request."""
    max_pixels: Count = 2**26
    """Most pixels of a picture."""
    max_pictures: Count = 64
    """Most pictures of a request."""
    timeout: Positive = 30.0
    """Most seconds to send a request, and again to answer it."""

    def _check(self) -> None:
        if not self.runs:
            raise ConfigError("nothing to serve: lht serve RUN")


@command("serve", "with a trained model")
def run_serve(args: ServeArgs) -> None:
    """Serve runs over HTTP: pictures in, the JSON of `lht predict` out."""
    for package in ("starlette", "uvicorn", "multipart"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("lht serve", extra="serve")
    import msgspec
    import uvicorn

    from torchlht.serve.connections import Connection
    from torchlht.serve.limits import VARIABLE, Settings
    from torchlht.serve.served import Models
    from torchlht.serve.sockets import listening, once_it_listens

    with listening(args.host, args.port) as free:  # whether it is to be had is told before runs are read
        port = free.getsockname()[1]
    threads = max(1, (os.cpu_count() or 1) // args.workers)
    with tempfile.TemporaryDirectory(prefix="lht-serve-") as shared:
        settings = Settings(
            runs=tuple(args.runs),
            batch=args.batch,
            latency=args.latency,
            queue=args.queue,
            bytes=args.max_bytes,
            pixels=args.max_pixels,
            pictures=args.max_pictures,
            seconds=args.timeout,
            threads=threads,
            shared=shared,
            parent=os.getpid() if args.workers > 1 else 0,
        )
        Models(settings.runs)  # a run that cannot be read is told now, not by each process
        os.environ[VARIABLE] = msgspec.json.encode(settings).decode()
        said = f"serving {', '.join(args.runs)} on http://{args.host}:{port} · stop with Ctrl-C"
        with once_it_listens(args.host, port, lambda: console.say(said)):
            uvicorn.run(
                "torchlht.serve.app:from_environment",
                factory=True,
                http=Connection,
                host=args.host,
                port=port,
                workers=args.workers if args.workers > 1 else None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=int(args.timeout) + 1,
            )
