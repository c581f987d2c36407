"""A request to predict, read: its pictures, and how to answer. What is wrong with it is a `Refusal` with a status of HTTP."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from torchlht.answer.model import Predictor
from torchlht.answer.named import Restriction, Wanted, wanted
from torchlht.doors import OpenShare, WholeShare, fit, from_json
from torchlht.errors import ConfigError, DataError
from torchlht.serve.limits import Settings

Top = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Names = list[Annotated[str, msgspec.Meta(max_length=1000)]]
FIELDS = 32  # of a form, besides its files


class Refusal(Exception):
    """Raised when a request is not answered: the status of HTTP, one sentence, and more for programs."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers, self.more = status, sentence, headers, more


class How(msgspec.Struct, forbid_unknown_fields=True):
    """How to answer: the options of `lht predict`."""

    confidence: WholeShare | None = None
    risk: OpenShare | None = None
    strict: bool = False
    only: Names = []
    exclude: Names = []
    top: Top = 1
    rule: str | None = None
    model: str | None = None


class Sent(msgspec.Struct):
    """A picture in JSON."""

    data: str
    name: str | None = None


class Posted(How, forbid_unknown_fields=True):
    """A request in JSON."""

    pictures: list[Sent] = []


class Asked(NamedTuple):
    """A request: pictures with their names, and how to answer."""

    pictures: list[tuple[str, bytes]]
    how: How


async def read_request(request: Request, settings: Settings) -> Asked:
    """The pictures and options of a request. Raises Refusal."""
    try:
        body = await asyncio.wait_for(bounded(request, settings.bytes), settings.seconds)
    except TimeoutError:
        raise Refusal(408, f"the request did not arrive within {settings.seconds:g} s") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "multipart/form-data":
            asked = await of_form(request, body, settings)
        elif kind == "application/json":
            asked = of_json(request, body)
        elif kind.startswith("image/") or kind in ("application/octet-stream", "", "application/x-www-form-urlencoded"):
            name, given = request.query_params.get("name"), options(request.query_params)
            asked = Asked([(name or "picture", body)] if body else [], fit(given, How, "the request", ConfigError))
        else:
            raise Refusal(415, f"{kind} is not read: send a picture, a form with files, or JSON")
    except (ConfigError, DataError) as error:
        raise Refusal(400, str(error)) from None
    if not asked.pictures:
        raise Refusal(400, "no picture was sent: send its bytes, a form with files, or JSON with `pictures`")
    if len(asked.pictures) > settings.pictures:
        raise Refusal(413, f"{len(asked.pictures):,} pictures at once; the most that is answered is {settings.pictures:,}")
    return asked


async def bounded(request: Request, most: int) -> bytes:
    """The body of a request. Raises Refusal when it is too large."""
    sentence = f"the request is too large; the most that is read is {most:,} bytes"
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise Refusal(413, sentence, {"Connection": "close"})
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Refusal(413, sentence, {"Connection": "close"})
            parts.append(part)
    except ClientDisconnect:
        raise Refusal(400, "the client left before the request was complete") from None
    return b"".join(parts)


def options(given: Mapping[str, str]) -> dict[str, Any]:
    """Options in an address or a form: all are text, lists are separated by commas."""
    found: dict[str, Any] = {name: value for name, value in given.items() if name != "name"}
    for name in ("only", "exclude"):
        if name in found:
            found[name] = [one.strip() for one in found[name].split(",") if one.strip()]
    for name in ("confidence", "risk", "top", "strict"):
        if name in found:
            try:
                found[name] = msgspec.json.decode(found[name])
            except msgspec.DecodeError:
                raise ConfigError(f"{name} is {found[name][:40]!r}: it must be a number, or true or false") from None
    return found


async def of_form(request: Request, body: bytes, settings: Settings) -> Asked:
    """A form: its files are the pictures."""

    async def replay() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    again = Request(request.scope, replay)
    try:
        async with again.form(max_files=settings.pictures, max_fields=FIELDS, max_part_size=2**20) as form:
            texts = {name: value for name, value in form.items() if isinstance(value, str)}
            files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
            pictures = [(one.filename or "picture", await one.read()) for one in files]
    except HTTPException as error:
        raise Refusal(413 if "Too many" in str(error.detail) else 400, f"the form cannot be read ({error.detail})") from None
    return Asked(pictures, fit({**options(request.query_params), **options(texts)}, How, "the form", ConfigError))


def of_json(request: Request, body: bytes) -> Asked:
    """JSON with pictures in base64."""
    content = from_json(body, dict[str, Any], "the request", ConfigError)
    posted = fit({**options(request.query_params), **content}, Posted, "the request", ConfigError)
    pictures = []
    for i, one in enumerate(posted.pictures):
        try:
            pictures.append(
                (one.name or f"picture {i}", base64.b64decode(one.data.partition("base64,")[2] or one.data, validate=True))
            )
        except (binascii.Error, ValueError):
            raise ConfigError(f"pictures[{i}].data is not base64") from None
    return Asked(pictures, posted)


def deciding(model: Predictor, how: How) -> tuple[Restriction | None, Wanted]:
    """The restriction and the threshold that a request asks for. Raises Refusal."""
    try:
        if any(name.startswith("@") for name in (*how.only, *how.exclude)):
            raise ConfigError("names in a request may not be files")
        restriction = Restriction.parse(model.hierarchy, how.only, how.exclude)
        asked = wanted(
            how.confidence,
            how.risk,
            how.rule or model.rule,
            model.calibration,
            restricted=restriction is not None,
            strict=how.strict,
        )
    except (ConfigError, DataError) as error:
        raise Refusal(400, str(error)) from None
    return restriction, model.wanted if asked.promise is None and restriction is None else asked
