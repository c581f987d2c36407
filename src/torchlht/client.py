"""A client of `lht serve` that needs nothing but Python.

>>> client = Client("http://127.0.0.1:8000")
>>> client.predict("beach.jpg", confidence=0.9)[0]["answer"]["label"]
'Laridae'
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from torchlht.errors import LHTError

LONGEST = 10.0  # seconds to wait before asking again, whatever the server says


class Candidate(TypedDict):
    """A class and its probability; `level` is its own where its branch ends there, or skips the level that was asked about."""

    label: str
    probability: float
    level: NotRequired[str]


class Answer(TypedDict):
    """One answer, as deep as the threshold allows."""

    label: str | None
    level: str | None
    probability: float | None
    path: list[str]
    path_probabilities: list[float]
    rule: str
    promise: str | None
    threshold: float
    undecided: str | None
    runners_up: list[Candidate]
    unlike: str | None
    ends: bool


class Level(TypedDict):
    """The answer at one level by itself."""

    level: str
    label: str | None
    probability: float
    candidates: list[Candidate]
    as_far: float | None
    unlike: bool
    ends: bool


class Found(TypedDict):
    """What a server says about a picture; docs/predict.schema.json describes it."""

    file: str
    answer: Answer
    levels: list[Level]
    consistent: bool
    calibrated: bool
    restricted: bool


class ServerError(LHTError):
    """Raised when a server refuses a request, or cannot be reached.

    Attributes:
        status: the status of HTTP; 0 if there was no answer.
        pictures: those that cannot be read, each with `file` and `reason`.
    """

    def __init__(self, status: int, sentence: str, pictures: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(sentence)
        self.status, self.pictures = status, list(pictures)


class Client:
    """Asks a server. A prediction changes nothing, so a request whose connection breaks is sent again.

    Args:
        address: of the server.
        timeout: seconds to wait for an answer.
        retries: how many times to ask again when the server is full or the connection breaks.
    """

    def __init__(self, address: str = "http://127.0.0.1:8000", *, timeout: float = 60.0, retries: int = 5) -> None:
        if not address.startswith(("http://", "https://")):
            raise ServerError(0, f"{address}: an address begins with http:// or https://")
        self.address, self.timeout, self.retries = address.rstrip("/"), timeout, retries

    def predict(
        self,
        *pictures: str | Path | bytes,
        confidence: float | None = None,
        risk: float | None = None,
        strict: bool = False,
        only: Sequence[str] = (),
        exclude: Sequence[str] = (),
        top: int = 1,
        rule: str | None = None,
        model: str | None = None,
    ) -> list[Found]:
        """What the server says about pictures: their files, or their bytes. Options are those of `lht predict`.

        Raises:
            ServerError: when the server refuses, or does not answer however often it is asked.
            OSError: when a file cannot be read.
        """
        asked = {
            **{"confidence": confidence, "risk": risk, "strict": strict, "only": list(only), "exclude": list(exclude)},
            **{"top": top, "rule": rule, "model": model},
            "pictures": [_sent(i, one) for i, one in enumerate(pictures)],
        }
        return cast("list[Found]", self._post("/v1/predict", json.dumps(asked).encode()))

    def health(self) -> dict[str, Any]:
        """Which models answer, and how many pictures wait."""
        return cast("dict[str, Any]", self._post("/healthz", None))

    def _post(self, path: str, body: bytes | None) -> Any:
        for turn in range(self.retries + 1):
            request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                refused = _refused(error)
                if refused.status != 503 or turn == self.retries:
                    raise refused from None
                time.sleep(min(float(error.headers.get("Retry-After") or 1), LONGEST))
            except (OSError, http.client.HTTPException) as error:  # the connection broke, or there was none
                if turn == self.retries:
                    raise ServerError(0, f"{self.address}: no answer ({error})") from None
                time.sleep(min(0.1 * 2**turn, LONGEST))
        raise AssertionError("unreachable")


def _sent(i: int, picture: str | Path | bytes) -> dict[str, str]:
    """A picture in JSON."""
    content, name = (picture, f"picture {i}") if isinstance(picture, bytes) else (Path(picture).read_bytes(), str(picture))
    return {"name": name, "data": base64.b64encode(content).decode("ascii")}


def _refused(error: urllib.error.HTTPError) -> ServerError:
    """What the server says is wrong."""
    text = error.read().decode("utf-8", "replace")
    try:
        content = json.loads(text)
        return ServerError(error.code, str(content["error"]), content.get("pictures", ()))
    except (ValueError, KeyError, TypeError):
        return ServerError(error.code, f"the server answered {error.code} ({text[:100]})")
