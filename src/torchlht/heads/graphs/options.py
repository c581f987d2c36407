"""What a method for several labels per sample is asked for. Quick to import: a wrong option is refused without torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

import msgspec

from torchlht.data.options import Options, refuse
from torchlht.doors import Share, WholeShare, Width
from torchlht.errors import ConfigError, suggestion

GraphMethod = Literal["c-hmcnn", "flat", "lht"]
INSTEAD = {
    "marginal": "it sums over classes of which one is right; lht is the like of it for several labels",
    "multihead": "its levels would need a class each; flat has a sigmoid for every class",
}
Layers = Annotated[int, msgspec.Meta(ge=1, le=16, description="it must be from 1 to 16")]
Members = Annotated[int, msgspec.Meta(ge=1, le=64, description="it must be from 1 to 64")]


def check_graph_method(name: str) -> None:
    """Raise ConfigError unless this method learns several labels per sample; the sentence says what to use instead."""
    if name not in get_args(GraphMethod):
        why = INSTEAD.get(name, "it needs one class at each level")
        raise ConfigError(f"method {name} does not learn several labels per sample: {why}; use lht, c-hmcnn or flat")


@dataclass(frozen=True, kw_only=True)
class GraphArgs(Options):
    """The network of such a method. The defaults are ours; those of C-HMCNN's authors are in `lht reproduce hmc`."""

    method: str = "lht"
    width: Width = 500
    """Width of the hidden layers."""
    layers: Layers = 3
    """Number of layers."""
    dropout: Share = 0.5
    """Share of hidden values dropped in training."""
    members: Members = 1
    """How many networks are trained side by side; answers are their mean."""
    shortcut: WholeShare | None = None
    """Share of a kernel smoother, fitted at once, in the answers; by default 0.5 for lht, else 0."""

    def _check(self) -> None:
        check_graph_method(self.method)

    def share(self) -> float:
        """`shortcut`, with its default filled in."""
        return (0.5 if self.method == "lht" else 0.0) if self.shortcut is None else self.shortcut

    @classmethod
    def from_pairs(cls, method: str, pairs: Iterable[str]) -> GraphArgs:
        """From NAME=VALUE."""
        known = {f.name: f.type for f in fields(cls) if f.name != "method"}
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            refuse(name not in known, f"method {method} for several labels has no option {name!r}: {suggestion(name, known)}")
            try:
                values[name] = (float if "Share" in str(known[name]) else int)(text)
            except ValueError:
                raise ConfigError(f"`{name}` is {text!r}: it takes a number") from None
        return cls(method=method, **values)
