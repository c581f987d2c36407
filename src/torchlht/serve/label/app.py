"""The server's routes. What comes in is decoded into schemas; what goes out is JSON, pictures, and the files of the page."""

from __future__ import annotations

import asyncio
import importlib.resources
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torchlht.doors import sentence
from torchlht.errors import ConfigError, DataError, LHTError
from torchlht.serve.label.desk import Conflict, Desk, Given
from torchlht.serve.label.guards import Doors, Guards, refused
from torchlht.serve.label.journal import Name, Person, What
from torchlht.serve.label.queues import Wanted
from torchlht.serve.label.shown import SIDES, Shown

T = TypeVar("T")
PAGE = {
    "page.css": "text/css", "page.js": "text/javascript", "search.js": "text/javascript", "parts.js": "text/javascript",
    "asking.js": "text/javascript", "login.js": "text/javascript", "icon.svg": "image/svg+xml",
}  # fmt: skip
MANY = 5000
"""Most samples in one answer."""
Handler = Callable[[Request], Awaitable[Response]]


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """An answer; samples are pairs of a number and the version that was seen."""

    samples: Annotated[list[tuple[int, int]], msgspec.Meta(min_length=1, max_length=MANY)]
    what: What
    by: Person = ""
    node: int | None = None
    shown: bool = False
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0


class ClassBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new class."""

    parent: int
    name: Name
    by: Person = ""


class ByBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who wants to undo or redo."""

    by: Person = ""


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    """A password."""

    password: Annotated[str, msgspec.Meta(max_length=1000)]


def said(value: Any, status: int = 200) -> Response:
    """JSON."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def body(request: Request, kind: type[T]) -> T:
    """The body of a request, as its schema wants it. Raises ConfigError otherwise."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"not understood: {str(error).replace('`', '')}") from None


def number(request: Request, name: str, default: int, least: int = 0, most: int = 2**31) -> int:
    """A whole number in the address. Raises ConfigError if it is none."""
    text = request.query_params.get(name, str(default))
    if not text.lstrip("-").isdecimal() or len(text) > 12 or not least <= int(text) <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


class App:
    """The handlers, around one desk."""

    def __init__(self, desk: Desk, doors: Doors, person: str) -> None:
        self.desk, self.doors, self.person = desk, doors, person
        self.shown = Shown(desk.samples)

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        """The page."""
        return file("index.html", "text/html")

    async def page(self, request: Request) -> Response:
        """A file of the page, by its name in a fixed list."""
        name = str(request.path_params["name"])
        if name == "colours.css":
            return look("colours.css")
        if name not in PAGE:
            raise DataError("no such file of the page")
        return file(name, PAGE[name])

    async def start(self, request: Request) -> Response:
        """What the page needs first."""
        return said({**self.desk.start(), "person": self.person})

    async def tree(self, request: Request) -> Response:
        """Classes."""
        return said(self.desk.tree(number(request, "since", 0)))

    async def queue(self, request: Request) -> Response:
        """A part of a queue."""
        wanted = Wanted(number(request, "node", -1, least=-1), request.query_params.get("text", "")[:200])
        at, count = number(request, "at", 0), number(request, "count", 60, most=500)
        return said(self.desk.queue(request.query_params.get("name", "all"), wanted, at, count))

    async def sample(self, request: Request) -> Response:
        """Everything about a sample."""
        return said(self.desk.detail(request.path_params["i"]))

    async def picture(self, request: Request) -> Response:
        """A picture, by number."""
        size = request.query_params.get("size", "small")
        if size not in SIDES:
            raise ConfigError(f"size must be {' or '.join(SIDES)}")
        content = await run_in_threadpool(self.shown.jpeg, request.path_params["i"], size)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def changes(self, request: Request) -> Response:
        """What has changed since an event."""
        return said(self.desk.changes(number(request, "since", 0)))

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """Write an answer. It is on the disk when this returns."""
        wanted = await body(request, AnswerBody)
        given = Given(wanted.samples, wanted.what, wanted.node, wanted.by, wanted.shown, wanted.seconds)
        return self.told(self.desk.answer(given))

    async def new_class(self, request: Request) -> Response:
        """Add a class."""
        wanted = await body(request, ClassBody)
        node = self.desk.add_class(wanted.parent, wanted.name, wanted.by)
        return said({"node": node, **self.desk.progress()})

    async def undo(self, request: Request) -> Response:
        """Undo."""
        return self.told(self.desk.undo((await body(request, ByBody)).by))

    async def redo(self, request: Request) -> Response:
        """Redo."""
        return self.told(self.desk.redo((await body(request, ByBody)).by))

    async def train(self, request: Request) -> Response:
        """Start a training."""
        self.desk.train()
        return said(self.desk.progress())

    def told(self, event: int) -> Response:
        """What an event has changed."""
        briefs = [self.desk.brief(i) for i in self.desk.state.samples_of(event)]
        return said({"event": event, "samples": briefs, **self.desk.progress()})

    # ---- the password ----------------------------------------------------------------------------------------------

    async def login_page(self, request: Request) -> Response:
        """The page that asks for the password."""
        return file("login.html", "text/html")

    async def login(self, request: Request) -> Response:
        """Let in who knows the password."""
        password = self.doors.password
        if password is None:
            return refused(404, "there is no password: open the address that lht label printed")
        given = (await body(request, LoginBody)).password
        if not await run_in_threadpool(password.fits, given):
            await asyncio.sleep(0.5)
            return refused(429 if password.blocked() else 403, "wrong password, or too many attempts; wait a minute")
        return self.doors.let_in(said({}))


def file(name: str, kind: str) -> Response:
    """A file of the page."""
    content = importlib.resources.files("torchlht.serve.label").joinpath("page", name).read_bytes()
    return Response(content, media_type=f"{kind}; charset=utf-8")


def look(name: str) -> Response:
    """The colours of the report."""
    content = importlib.resources.files("torchlht.show").joinpath("templates", name).read_bytes()
    return Response(content, media_type="text/css; charset=utf-8")


def telling(handler: Handler) -> Handler:
    """A handler whose errors are sentences."""

    async def call(request: Request) -> Response:
        try:
            return await handler(request)
        except Conflict as conflict:
            desk: Desk = request.app.state.desk
            return said({"conflict": [desk.detail(i) for i in conflict.samples[:20]], "error": str(conflict)}, 409)
        except LHTError as error:
            return said({"error": str(error)}, 404 if isinstance(error, DataError) else 400)
        except OSError as error:
            return said({"error": f"not saved: {sentence(error)}"}, 507)

    return call


def create_app(desk: Desk, doors: Doors, person: str = "") -> Guards:
    """The server as an ASGI application, behind its doors."""
    app = App(desk, doors, person)
    routes: dict[tuple[str, str], Handler] = {
        ("GET", "/"): app.index,
        ("GET", "/page/{name:str}"): app.page,
        ("GET", "/api/start"): app.start,
        ("GET", "/api/tree"): app.tree,
        ("GET", "/api/queue"): app.queue,
        ("GET", "/api/sample/{i:int}"): app.sample,
        ("GET", "/api/changes"): app.changes,
        ("GET", "/picture/{i:int}"): app.picture,
        ("POST", "/api/answer"): app.answer,
        ("POST", "/api/class"): app.new_class,
        ("POST", "/api/undo"): app.undo,
        ("POST", "/api/redo"): app.redo,
        ("POST", "/api/train"): app.train,
        ("GET", "/login"): app.login_page,
        ("POST", "/login"): app.login,
    }
    inner = Starlette(routes=[Route(path, telling(handler), methods=[method]) for (method, path), handler in routes.items()])
    inner.state.desk = desk
    return Guards(inner, doors)
