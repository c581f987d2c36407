"""What a server says about itself: OpenAPI, and a page that shows it."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from torchlht.answer.model import Predictor
from torchlht.serve.limits import Settings
from torchlht.show.page import TEMPLATES as LOOK

OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "confidence": ({"type": "number", "minimum": 0, "maximum": 1}, "Answer with the deepest class that is this probable."),
    "risk": ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "Answer so that at most this share is wrong."),
    "strict": ({"type": "boolean"}, "For risk: count validation answers that no label can check as wrong."),
    "only": ({"type": "string"}, "Allow only these classes: names at any level, separated by commas; in JSON a list."),
    "exclude": ({"type": "string"}, "Rule out these classes."),
    "top": ({"type": "integer", "minimum": 1, "default": 1}, "Number of candidates per level."),
    "rule": ({"type": "string"}, "How answers are chosen; see lht methods."),
    "model": ({"type": "string"}, "Which of the served models answers; the first by default."),
}
STATUSES = {
    "200": "One object per picture, as lht predict --format json prints them.",
    "400": "An option makes no sense, or there is no picture.",
    "408": "The request did not arrive in time.",
    "413": "Too many bytes, or too many pictures.",
    "415": "Another kind of content than is read.",
    "422": "A picture cannot be read; `pictures` lists all of them, with the reason.",
    "503": "Too many pictures wait; Retry-After says when to ask again.",
    "504": "Not answered in time.",
}
TEMPLATES = Environment(
    loader=PackageLoader("torchlht.serve", "web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def description(settings: Settings) -> dict[str, Any]:
    """The server in OpenAPI 3.1."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    listed = {name: {**schema, "description": what} for name, (schema, what) in OPTIONS.items()}
    names = {
        name: {"type": "array", "items": {"type": "string"}, "description": OPTIONS[name][1]} for name in ("only", "exclude")
    }
    sent = {"type": "object", "required": ["data"], "properties": {"name": {"type": "string"}, "data": {"type": "string"}}}
    form = {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}, **listed}
    answers = {
        "description": STATUSES["200"],
        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}},
    }
    predict = {
        "summary": "Predict classes at every level for pictures",
        "description": f"At most {settings.pictures} pictures, {settings.bytes:,} bytes and {settings.seconds:g} s a request.",
        "parameters": [
            {"name": name, "in": "query", "schema": schema, "description": what} for name, (schema, what) in OPTIONS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": binary,
                "application/octet-stream": binary,
                "multipart/form-data": {"schema": {"type": "object", "properties": form}},
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"pictures": {"type": "array", "items": sent}, **listed, **names},
                    }
                },
            },
        },
        "responses": {code: answers if code == "200" else {"description": what} for code, what in STATUSES.items()},
    }
    plain = {"responses": {"200": {"description": "It is up."}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "torchlht", "version": importlib.metadata.version("torchlht")},
        "paths": {
            "/v1/predict": {"post": predict},
            "/healthz": {"get": {"summary": "Whether it is up, and which models answer", **plain}},
            "/metrics": {"get": {"summary": "Counts in Prometheus' format", **plain}},
        },
    }


def page(described: dict[str, Any], models: Mapping[str, Predictor]) -> str:
    """The description as a page, which needs no other file."""
    style = importlib.resources.files("torchlht.show").joinpath("templates", "page.css").read_text(encoding="utf-8")
    return TEMPLATES.get_template("server.html").render(
        about=described,
        models={name: model.hierarchy.describe() for name, model in models.items()},
        style=Markup(f"{LOOK.get_template('colours.css').render()}\n{style}"),
    )
