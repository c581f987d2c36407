"""The application of `lht serve`: one of these in each of its processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from torchlht.errors import ConfigError, DataError, LHTError
from torchlht.heads.prediction import find_rule
from torchlht.serve.answering import Manner, Question
from torchlht.serve.asked import Refusal, deciding, read_request
from torchlht.serve.batching import Batcher
from torchlht.serve.counting import Counts
from torchlht.serve.describing import description, page
from torchlht.serve.limits import VARIABLE, Settings
from torchlht.serve.served import Models

WRITE = 1.0  # seconds between two times that counts are written


class Server:
    """What the requests of one process share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.counts = settings, Counts(settings.shared)
        self.models = Models(settings.runs)
        self.waiting = 0
        self.tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def life(self, app: Starlette) -> AsyncIterator[None]:
        """From the first request to the last."""
        self.batcher = Batcher(self.settings.batch, self.settings.latency, self.settings.threads, self.counts.batch)
        self.tasks = [asyncio.create_task(work()) for work in (self.batcher.run, self.models.watch, self.keep_counts)]
        with suppress(ValueError, NotImplementedError, RuntimeError):  # not in the main thread: no signals there
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, lambda: self.tasks.append(loop.create_task(self.models.reload_all())))
        yield
        for task in self.tasks:
            task.cancel()
        self.counts.write()

    async def keep_counts(self) -> None:
        """Write the counts from time to time, and stop when the process that started this one is gone."""
        while True:
            self.counts.set("torchlht_waiting", self.waiting)
            self.counts.set("torchlht_reloads_total", sum(self.models.loads.values()) - len(self.models.loads))
            self.counts.set("torchlht_reload_failures_total", self.models.failures)
            self.counts.write()
            await asyncio.sleep(WRITE)
            if self.settings.parent and os.getppid() != self.settings.parent:
                os.kill(os.getpid(), signal.SIGTERM)  # nobody would start or stop this process any more
                return

    # ---- answering -----------------------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """POST /v1/predict."""
        began, status = time.perf_counter(), 500
        try:
            response = await self.answered(request)
            status = response.status_code
        except Refusal as refusal:
            status = refusal.status
            response = as_json({"error": refusal.sentence, **refusal.more}, status, dict(refusal.headers or {}))
        finally:
            self.counts.request(status, time.perf_counter() - began)
        return response

    async def answered(self, request: Request) -> Response:
        """The answer to a request. Raises Refusal."""
        self.check_room(1)
        asked = await read_request(request, self.settings)
        try:
            model = self.models.get(asked.how.model)
            find_rule(asked.how.rule or model.rule)
        except ConfigError as error:
            raise Refusal(400, str(error)) from None
        restriction, wanted = deciding(model, asked.how)
        manner = Manner(wanted, restriction, asked.how.rule, asked.how.top, self.settings.pixels)
        count = len(asked.pictures)
        self.check_room(count)
        self.waiting += count
        try:
            async with asyncio.timeout(self.settings.seconds):
                found = await self.batcher.ask([Question(model, name, data, manner) for name, data in asked.pictures])
        except TimeoutError:
            raise Refusal(504, f"not answered within {self.settings.seconds:g} s; send fewer pictures, or ask later") from None
        except LHTError as error:
            raise Refusal(500, str(error)) from None
        finally:
            self.waiting -= count
        bad = [(name, one) for (name, _), one in zip(asked.pictures, found, strict=True) if isinstance(one, DataError)]
        if bad:
            pictures = [{"file": name, "reason": str(error)} for name, error in bad]
            raise Refusal(422, f"{bad[0][0]}: {bad[0][1]}", pictures=pictures)
        self.counts.add("torchlht_pictures_total", count)
        return as_json(found)

    def check_room(self, count: int) -> None:
        """Raise Refusal when too many pictures wait already."""
        if self.waiting + count > self.settings.queue:
            sentence = f"{self.waiting:,} pictures wait already; ask again in a moment"
            raise Refusal(503, sentence, {"Retry-After": "1"})

    # ---- about itself --------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """GET /healthz."""
        models = {name: {"levels": list(model.hierarchy.levels[::-1])} for name, model in self.models.models.items()}
        return as_json({"status": "ok", "models": models, "waiting": self.waiting})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        return PlainTextResponse(self.counts.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        return as_json(description(self.settings))

    async def docs(self, request: Request) -> Response:
        """GET /."""
        return HTMLResponse(page(description(self.settings), self.models.models), headers=SAFE)


SAFE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Content-Type-Options": "nosniff"}


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response in JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return Response(
        text.encode(errors="replace"), status, {"X-Content-Type-Options": "nosniff", **(headers or {})}, "application/json"
    )


Answer = Callable[[Request], Awaitable[Response]]


def application(settings: Settings) -> Starlette:
    """The application. Raises LHTError when a run cannot be read."""
    server = Server(settings)
    routes: list[tuple[str, Answer, str]] = [
        ("/v1/predict", server.predict, "POST"),
        ("/healthz", server.health, "GET"),
        ("/metrics", server.metrics, "GET"),
        ("/openapi.json", server.openapi, "GET"),
        ("/", server.docs, "GET"),
    ]
    app = Starlette(routes=[Route(path, answer, methods=[method]) for path, answer, method in routes], lifespan=server.life)
    app.state.server = server
    return app


def from_environment() -> Starlette:
    """The application of a worker process, whose settings are in its environment."""
    return application(msgspec.json.decode(os.environ[VARIABLE], type=Settings))
