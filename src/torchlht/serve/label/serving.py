"""The server: from options to a page in the browser, until it is ended."""

from __future__ import annotations

import asyncio
import functools
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchlht.data.samples import Samples
from torchlht.errors import ConfigError, MissingExtraError
from torchlht.serve.label.addresses import is_local
from torchlht.serve.label.costs import Asking
from torchlht.serve.label.desk import Desk
from torchlht.serve.label.journal import Begin, Entry, Journal, now, opened
from torchlht.serve.label.learner import Learner, Message, Setup
from torchlht.serve.label.reading import Source, read_doubts, read_synonyms, replayed
from torchlht.serve.sockets import listening

try:
    import uvicorn

    from torchlht.serve.label.app import create_app
    from torchlht.serve.label.guards import Doors, Password
except ImportError:
    raise MissingExtraError("lht label", extra="label") from None


@dataclass(frozen=True)
class Wishes:
    """How the page asks and learns: see `lht label --help`."""

    run: str | None = None
    backbone: str = "auto"
    audit: Path | None = None
    blind: float = 0.1
    confidence: float = 0.5
    train_every: int = 20
    asking: Asking = field(default_factory=Asking)
    synonyms: Path | None = None
    learn: bool = True


@contextmanager
def desk_for(source: Source, wishes: Wishes) -> Iterator[Desk]:
    """Context: the desk for some data, with its journal open."""
    samples = source.read()
    tree = samples.hierarchy
    begin = Begin(at=now(), format=1, data=samples.name, levels=[tree.levels[k] for k in tree.top_down])
    with opened(source.folder(), begin) as (journal, entries):
        yield new_desk(samples, journal, entries, wishes)


def new_desk(samples: Samples, journal: Journal, entries: list[Entry], wishes: Wishes) -> Desk:
    """A desk without a learner."""
    wishes.asking.check(samples.hierarchy)
    state = replayed(samples, entries)
    doubts = read_doubts(wishes.audit, state) if wishes.audit else {}
    return Desk(
        samples,
        state,
        journal,
        doubts,
        blind_share=wishes.blind,
        confidence=wishes.confidence,
        train_every=wishes.train_every,
        asking=wishes.asking,
        synonyms=read_synonyms(wishes.synonyms, state) if wishes.synonyms else {},
    )


def serve(
    source: Source,
    wishes: Wishes,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    password: str | None = None,
    person: str = "",
    ready: Callable[[str, Desk], None] = lambda address, desk: None,
) -> None:
    """Serve the page until the process is interrupted.

    Args:
        source: what to label.
        wishes: how the page asks and learns.
        host: the address to listen at.
        port: its port; 0 takes a free one.
        password: asked of those who come without the token; needed unless `host` is of this machine alone.
        person: the name that the page starts with.
        ready: is called with the page's address when it can be opened.
    """
    if not is_local(host) and password is None:
        raise ConfigError(f"`host={host}` lets others in: it needs a password")
    with desk_for(source, wishes) as desk, listening(host, port) as sock:
        doors = Doors(host, sock.getsockname()[1], Password(password) if password is not None else None)
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        asyncio.run(_serve(desk, doors, sock, source, wishes, person, functools.partial(ready, doors.address(shown), desk)))


async def _serve(
    desk: Desk, doors: Doors, sock: socket.socket, source: Source, wishes: Wishes, person: str, ready: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(
        create_app(desk, doors, person),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    ready()
    if wishes.learn:  # after the page can be opened: starting a process takes a second
        setup = Setup(source.read, wishes.backbone, wishes.run, wishes.asking)
        desk.learner = Learner(setup, lambda message: _post(loop, desk, message))
    try:
        await serving
    finally:
        if desk.learner is not None:
            desk.learner.stop()


def _post(loop: asyncio.AbstractEventLoop, desk: Desk, message: Message) -> None:
    """Hand a message of the learner to the server's own thread, unless that has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(desk.hear, message)


def open_browser(address: str) -> bool:
    """Open the page in a browser, if there is one."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
