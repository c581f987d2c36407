"""What a method is asked for on a graph of classes. Quick to import: a wrong option is refused without torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

import msgspec

from torchlht.data.options import Options, refuse
from torchlht.doors import NotNegative, Number, Rank, Share, WholeShare, Width
from torchlht.errors import ConfigError, suggestion

GraphMethod = Literal["c-hmcnn", "flat", "lht"]
LeafMethod = Literal["marginal", "lht", "c-hmcnn", "multihead", "flat"]
INSTEAD = {
    "marginal": "it sums over classes of which one is right; lht is the like of it for several labels",
    "multihead": "its levels would need a class each; flat has a sigmoid for every class",
}
Layers = Annotated[int, msgspec.Meta(ge=1, le=16, description="it must be from 1 to 16")]
Members = Annotated[int, msgspec.Meta(ge=1, le=64, description="it must be from 1 to 64")]


def check_graph_method(name: str, exclusive: bool) -> None:
    """Raise ConfigError unless this method learns on such data; the sentence says what to use instead."""
    if exclusive:
        why = "it needs a tree, and some classes have several parents; use marginal, lht, c-hmcnn, multihead or flat"
        refuse(name not in get_args(LeafMethod), f"method {name} does not learn here: {why}")
    elif name not in get_args(GraphMethod):
        why = INSTEAD.get(name, "it needs one class at each level")
        raise ConfigError(f"method {name} does not learn several labels per sample: {why}; use lht, c-hmcnn or flat")


@dataclass(frozen=True, kw_only=True)
class GraphArgs(Options):
    """The network of such a method. The defaults are ours; those of C-HMCNN's authors are in `lht reproduce hmc`."""

    method: str = "lht"
    exclusive: bool = False
    """Whether each sample belongs to exactly one leaf."""
    width: Width = 500
    """Width of the hidden layers."""
    layers: Layers = 3
    """Number of layers; 2 by default for one label per sample."""
    dropout: Share = 0.5
    """Share of hidden values dropped in training."""
    members: Members = 1
    """How many networks are trained side by side; answers are their mean."""
    shortcut: WholeShare | None = None
    """Share of a kernel smoother, fitted at once, in the answers; by default 0.5 for lht, else 0."""

    rank: Rank = 2
    """lht, one label per sample: rank of the transitions."""
    gamma: Number | None = None
    """lht, one label per sample: weight of the graph in the transitions at the start; by default 6, more for many classes."""
    prior_weight: NotNegative = 10.0
    """lht, one label per sample: what holds the transitions near the graph."""

    def _check(self) -> None:
        check_graph_method(self.method, self.exclusive)

    def share(self) -> float:
        """`shortcut`, with its default filled in."""
        usual = 0.5 if self.method == "lht" and not self.exclusive else 0.0
        return usual if self.shortcut is None else self.shortcut

    @classmethod
    def known(cls, exclusive: bool) -> dict[str, str]:
        """The options there are, with their types."""
        others = ("method", "exclusive", *(("shortcut",) if exclusive else ("rank", "gamma", "prior_weight")))
        return {f.name: str(f.type) for f in fields(cls) if f.name not in others}

    @classmethod
    def from_pairs(cls, method: str, pairs: Iterable[str], *, exclusive: bool = False) -> GraphArgs:
        """From NAME=VALUE."""
        known = cls.known(exclusive)
        check_graph_method(method, exclusive)
        values: dict[str, Any] = {"layers": 2} if exclusive else {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            refuse(name not in known, f"method {method} on a graph has no option {name!r}: {suggestion(name, known)}")
            whole = known[name] in ("Width", "Layers", "Members", "Rank")
            try:
                values[name] = (int if whole else float)(text)
            except ValueError:
                raise ConfigError(f"`{name}` is {text!r}: it takes a number") from None
        return cls(method=method, exclusive=exclusive, **values)
