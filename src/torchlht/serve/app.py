"""The application of `lht serve`: one of these in each of its processes."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from torch import Tensor

from torchlht.answer.model import Predictor
from torchlht.answer.plain import as_dict
from torchlht.data.pictures import PIXELS, BytesPicture, open_bytes, open_image
from torchlht.data.preparing import Preprocess, centre_crop, decode
from torchlht.errors import ConfigError, DataError, LHTError
from torchlht.heads.prediction import find_rule
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
        self.decoding = ThreadPoolExecutor(max(2, settings.threads), thread_name_prefix="decoding")
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
        restriction, threshold = deciding(model, asked.how)
        count = len(asked.pictures)
        self.check_room(count)
        self.waiting += count
        try:
            async with asyncio.timeout(self.settings.seconds):
                prepared = await self.prepare(asked.pictures, model)
                said = await self.batcher.ask(model, prepared)
        except TimeoutError:
            raise Refusal(504, f"not answered within {self.settings.seconds:g} s; send fewer pictures, or ask later") from None
        except LHTError as error:
            raise Refusal(500, str(error)) from None
        finally:
            self.waiting -= count
        names = [name for name, _ in asked.pictures]
        found = model.named(said, names, asked.how.top, asked.how.rule, restriction)
        self.counts.add("torchlht_pictures_total", count)
        return as_json([as_dict(named, threshold) for named in found])

    def check_room(self, count: int) -> None:
        """Raise Refusal when too many pictures wait already."""
        if self.waiting + count > self.settings.queue:
            sentence = f"{self.waiting:,} pictures wait already; ask again in a moment"
            raise Refusal(503, sentence, {"Retry-After": "1"})

    async def prepare(self, pictures: list[tuple[str, bytes]], model: Predictor) -> list[Tensor]:
        """Pictures as the network takes them. Raises Refusal that names every one that cannot be read."""
        assert model.preprocess is not None
        loop, step = asyncio.get_running_loop(), functools.partial(prepared, spec=model.preprocess, pixels=self.settings.pixels)
        each = [loop.run_in_executor(self.decoding, step, name, data) for name, data in pictures]
        found = await asyncio.gather(*each, return_exceptions=True)
        bad = [
            {"file": name, "reason": str(one)}
            for (name, _), one in zip(pictures, found, strict=True)
            if isinstance(one, DataError)
        ]
        if bad:
            raise Refusal(422, f"{bad[0]['file']}: {bad[0]['reason']}", pictures=bad)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if isinstance(one, Tensor)]

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


@dataclass(frozen=True, slots=True)
class SentPicture(BytesPicture):
    """A picture of a request, with at most so many pixels."""

    most: int = PIXELS

    def open(self) -> Image.Image:
        """The picture, not decoded yet. Raises DataError when it says that it has more pixels."""
        image = open_bytes(self.data)
        if image.width * image.height > self.most:
            raise DataError(f"{image.width:,} × {image.height:,} pixels are too many; the most that is read is {self.most:,}")
        return image


def prepared(name: str, data: bytes, spec: Preprocess, pixels: int) -> Tensor:
    """The content of a picture file as uint8 (3, size, size). Raises DataError that says why it cannot be read."""
    try:
        return centre_crop(decode(open_image(SentPicture(data, name, pixels)), spec), spec).contiguous()
    except DataError as error:
        raise DataError(str(error).removeprefix(f"{name}: ")) from None


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
