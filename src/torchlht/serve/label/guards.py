"""Closed doors: who may ask the server, and what the browser may do with what it gets.

Every request passes `Guards` first. The Host must be ours, or another page could reach us under a name of its own that points
here (DNS rebinding). The Origin, if the browser names one, must be ours, too. Whoever asks must have the token: from the
address once, then in a cookie that no script can read and no other site can send; programs send it as a header.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchlht.serve.label.addresses import bracketed, names_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
BODY = 2**20
"""Largest body of a request, in bytes."""
WRONG, MINUTE = 10, 60.0
"""So many wrong passwords in a minute, and no more are looked at until it is over."""
OPEN = ("/login", "/page/login.js", "/page/page.css", "/page/colours.css")
"""What can be asked for without a token, if there is a password to be typed."""


class Password:
    """A password, kept only as a slow hash, and wrong attempts counted."""

    def __init__(self, password: str) -> None:
        self._salt = secrets.token_bytes(16)
        self._hash = self._slow(password)
        self._wrong: list[float] = []

    def _slow(self, password: str) -> bytes:
        return hashlib.scrypt(password.encode(), salt=self._salt, n=2**14, r=8, p=1)

    def blocked(self) -> bool:
        """Whether there were too many wrong attempts lately."""
        self._wrong = [then for then in self._wrong if time.monotonic() - then < MINUTE]
        return len(self._wrong) >= WRONG

    def fits(self, password: str) -> bool:
        """Whether it is the password; False while blocked."""
        if self.blocked():
            return False
        right = hmac.compare_digest(self._slow(password), self._hash)
        if not right:
            self._wrong.append(time.monotonic())
        return right


class Doors:
    """What is allowed to enter.

    Args:
        host: the address that the server listens on.
        port: its port.
        password: asked of those who do not have the token; None if only the token opens.
    """

    def __init__(self, host: str, port: int, password: Password | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self.port, self.password = port, password
        self.hosts = {f"{name}:{port}".lower() for name in names_of(host)}
        if port == 80:
            self.hosts |= {name.lower() for name in names_of(host)}
        self.cookie = f"lht-label-{port}"

    def address(self, host: str) -> str:
        """The address to open, with the token."""
        return f"http://{bracketed(host)}:{self.port}/?token={self.token}"

    def is_token(self, text: str | None) -> bool:
        """Whether a text is the token, found out in the same time for every text."""
        return text is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def has_token(self, headers: Headers) -> bool:
        """Whether a request carries the token, in the header or in the cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(given)
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self.cookie in cookies and self.is_token(cookies[self.cookie].value)

    def let_in(self, response: Response) -> Response:
        """The response with the cookie."""
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return response

    def refusal(self, request: Request) -> Response | None:
        """Why a request is turned away, or None."""
        headers = request.headers
        if headers.get("host", "").lower() not in self.hosts:
            return refused(421, "wrong Host: open the address that lht label printed")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return refused(403, "another page asks: only the page of lht label itself may")
        reading = request.method in ("GET", "HEAD")
        if not reading and origin is None and not headers.get("authorization"):
            return refused(403, "a request without Origin must carry the token as a header")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and request.url.path != "/":
            return refused(403, "another page asks: only the page of lht label itself may")
        if self.has_token(headers) or (self.password is not None and request.url.path in OPEN):
            return None
        if request.method == "GET" and request.url.path == "/":
            if self.is_token(request.query_params.get("token")):
                return self.let_in(RedirectResponse("/", status_code=303))
            if self.password is not None:
                return RedirectResponse("/login", status_code=303)
        return refused(403, "no token: open the address that lht label printed, with all that follows its ?")


def refused(status: int, why: str) -> Response:
    """A short answer."""
    return PlainTextResponse(f"{why}\n", status_code=status)


class Guards:
    """Middleware: turns away who may not enter, limits bodies, and adds the headers that keep the browser in."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self.app, self.doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # no web sockets

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        turned = self.doors.refusal(request) or too_large(request)
        await (turned or self.app)(scope, receive, guarded)


def too_large(request: Request) -> Response | None:
    """The refusal of a body that is too large, or whose length is not told."""
    if request.method in ("GET", "HEAD"):
        return None
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        return refused(411, "the length of the request is missing")
    return refused(413, f"the most that is read is {BODY:,} bytes") if int(length) > BODY else None
