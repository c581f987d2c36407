"""Networks that turn features into a transition between two adjacent levels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlht.errors import ConfigError, suggestion
from torchlht.heads.transition.core import (
    DenseTransition,
    LowRankTransition,
    Prior,
    SoftenedTransition,
    Transition,
    TreeTransition,
    widened,
)
from torchlht.heads.transition.tiled import TiledTransition
from torchlht.heads.transition.truncated import USUAL, Columns, TruncatedTransition
from torchlht.hierarchy.tree import Hierarchy
from torchlht.processes import world
from torchlht.vocabulary import Form

LARGEST = 2**24  # most entries of a matrix that is stored or learned
PLAIN = 2**18  # up to this many entries, `auto` takes `plain`
CONFUSED = 2**14  # the same with confusion terms, which `tiled` computes in the same pass
WORTH = 16  # with this many times the columns of `truncated`, `auto` gives up exactness


def automatic(rows: int, columns: int, *, most: int = USUAL.most, confused: bool = False, down: bool = False) -> Form:
    """The form for a matrix of this size, if `truncated` would compute `most` of its columns."""
    if rows * columns <= (CONFUSED if confused else PLAIN):
        return "plain"
    return "truncated" if rows * columns > PLAIN and columns >= WORTH * most and not down else "tiled"


def gamma_for(rows: int) -> float:
    """The initial γ for this many rows: 6, which puts 0.92 of a column on the true parent among 38, or what keeps it there."""
    return max(6.0, math.log(10.9 * (rows - 1))) if rows > 1 else 6.0


class TransitionNetwork(nn.Module):
    """Turns features into a `Transition` between two adjacent levels. The base class holds the tree.

    Args:
        in_features: width of the features.
        hierarchy: the tree.
        level: the finer of the two levels, 0 = finest.
        rank: rank s of `low_rank`; the others ignore it.
        gamma: initial weight γ of the prior S; see each network.
        bias: whether the linear layers have a bias.
        down: go from coarse to fine: columns are coarse classes, rows finer ones, the prior is Sᵀ.
        form: how `low_rank` is computed; the others have one form.
        columns: how many columns the form `truncated` computes.
        confused: whether confusion terms will be needed in training. The drift costs nothing extra in any form.
    """

    parents: Tensor

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        level: int,
        *,
        rank: int = 2,
        gamma: float = 6.0,
        bias: bool = True,
        down: bool = False,
        form: Form = "auto",
        columns: Columns = USUAL,
        confused: bool = False,
    ) -> None:
        super().__init__()
        fine, coarse = hierarchy.sizes[level], hierarchy.sizes[level + 1]
        self.rows, self.columns, self.down = (fine, coarse, True) if down else (coarse, fine, False)
        self.form, self.most, self.confused = form, columns, confused
        self.register_buffer("parents", torch.from_numpy(hierarchy.parents[level].copy()), persistent=False)
        self.make(in_features, rank, gamma, bias)

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Create the parameters, if there are any."""

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Rows and columns where the prior is 1."""
        children = torch.arange(len(self.parents), device=self.parents.device)
        return (children, self.parents) if self.down else (self.parents, children)

    def check_size(self, name: str) -> None:
        """Raise ConfigError if a matrix over all pairs of classes would be too large."""
        if self.rows * self.columns > LARGEST:
            raise ConfigError(
                f"transition {name} has a number for each of {self.rows:,} × {self.columns:,} pairs of classes; "
                f"at most {LARGEST:,} are possible: use low_rank, which grows with the classes"
            )

    def prior(self, gamma: Tensor) -> Tensor:
        """γ S (or γ Sᵀ) as a dense matrix (rows, columns)."""
        children, places = len(self.parents), self.pairs()
        empty = torch.zeros(self.rows, self.columns, dtype=gamma.dtype, device=gamma.device)
        return empty.index_put(places, gamma.expand(children))

    def scalars(self) -> dict[str, float]:
        """Quantities to record in the training history."""
        return {}


class LowRank(TransitionNetwork):
    """A = Q Lᵀ + γ S, T = column softmax of A; Q (rows, s) and L (columns, s) are linear in the features.

    The paper adds a scalar β to all of A. It is left out here: a constant in every row of a column cancels in the softmax, so
    its gradient is exactly zero. With γ = 1 a column starts with only e/(e + C_k - 1) on the true parent (0.07 for 38
    families); `gamma_for` starts it at 0.92 or more.

    Attributes:
        held: in training, leave out Q Lᵀ.
        moved: (columns,) the parents that S follows, where labels have moved some; see `yielding`. Kept with the weights.
    """

    moved: Tensor

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Create the layers of Q and L, and γ."""
        if rank < 1:
            raise ConfigError(f"rank is {rank}: it must be at least 1")
        self.rank = rank
        self.left = nn.Linear(in_features, rank * self.columns, bias=bias)
        self.right = nn.Linear(in_features, rank * self.rows, bias=bias)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        if self.form == "truncated" and self.down:
            raise ConfigError("the tree does not tell how a coarse class divides; truncated goes from fine to coarse only")
        self.edges = Prior.of(*self.pairs(), self.columns)
        self.register_load_state_dict_pre_hook(expect_moved)  # type: ignore[no-untyped-call]
        self.held = False
        self._left_out: Tensor | None = None  # over batches: sum of means, maximum, count

    def move(self, parents: Tensor) -> None:
        """Let S follow these parents, (columns,), instead of the tree's."""
        self.register_buffer("moved", parents.to(self.parents))
        self.parents = self.moved
        self.edges = Prior.of(*self.pairs(), self.columns)

    @property
    def chosen(self) -> Form:
        """The form in use. Confusion terms are needed in training alone."""
        confused = self.confused and self.training
        suited = automatic(self.rows, self.columns, most=self.most.most, confused=confused, down=self.down)
        return suited if self.form == "auto" else self.form

    def forward(self, features: Tensor) -> Transition:
        """(B, d) features to one transition per sample."""
        if self.held and self.training:
            return self.softened()
        batch, prior = features.shape[0], self.placed(features.device)
        left = None if self.chosen == "truncated" else widened(self.left(features)).view(batch, self.columns, self.rank)
        right = widened(self.right(features)).view(batch, self.rows, self.rank)
        if left is None:
            return TruncatedTransition(features, self.left, right, self.gamma, prior, self.most, self._note)
        if self.chosen == "tiled":
            return TiledTransition(left, right, self.gamma, prior, self.confused and self.training)
        return LowRankTransition(left, right, self.gamma, prior)

    def softened(self) -> Transition:
        """The column softmax of γ S alone. Several processes wait for a gradient of the other weights, so there it is zero."""
        gamma: Tensor = self.gamma
        if world() > 1:
            gamma = gamma + torch.stack([p.sum() for p in self.idle()]).sum() * 0
        return SoftenedTransition(self.parents, self.rows, gamma)

    def idle(self) -> list[nn.Parameter]:
        """The weights that do not learn now."""
        return [p for p in self.parameters() if p is not self.gamma] if self.held else []

    def placed(self, device: torch.device) -> Prior:
        """The prior on a device."""
        if self.edges.rows.device != device:
            self.edges = self.edges.to(device)
        return self.edges

    def _note(self, tail: Tensor) -> None:
        """Record the mass left out in training."""
        if self.training and torch.is_grad_enabled() and tail.numel():
            total, most, times = tail.new_zeros(3) if self._left_out is None else self._left_out
            self._left_out = torch.stack([total + tail.mean(), torch.maximum(most, tail.max()), times + 1])

    def scalars(self) -> dict[str, float]:
        """γ, which grows when the data agree with the tree; and the mass that `truncated` left out since the last call."""
        found = {"gamma": self.gamma.item()}
        if self._left_out is not None:
            total, most, times = self._left_out.tolist()
            found |= {"tail": total / times, "tail_max": most}
            self._left_out = None
        return found


def expect_moved(network: TransitionNetwork, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
    """Before weights are loaded, move the prior if theirs was. Raises RuntimeError if they name no parents."""
    assert isinstance(network, LowRank)
    if (parents := state.get(f"{prefix}moved")) is None:
        return
    if parents.shape != network.parents.shape or parents.dtype != torch.int64:
        raise RuntimeError(f"{prefix}moved is not a parent for each of {network.columns:,} classes")
    if len(parents) and not 0 <= int(parents.min()) <= int(parents.max()) < network.rows:
        raise RuntimeError(f"{prefix}moved names a parent that is none of {network.rows:,} classes")
    network.move(parents)


class Full(TransitionNetwork):
    """A = reshape(W u + b): every entry is free, without a prior. Large: C_k · C_{k-1} outputs."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Create the layer. Raises ConfigError if it would be too large."""
        self.check_size("full")
        self.logits = nn.Linear(in_features, self.rows * self.columns, bias=bias)

    def forward(self, features: Tensor) -> Transition:
        """(B, d) features to one matrix per sample."""
        logits = widened(self.logits(features)).view(features.shape[0], self.rows, self.columns)
        return DenseTransition(torch.log_softmax(logits, dim=1))


class Static(TransitionNetwork):
    """T = column softmax of a free matrix that is the same for every sample; it starts at γ S."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Create the matrix. Raises ConfigError if it would be too large."""
        self.check_size("static")
        self.logits = nn.Parameter(self.prior(torch.tensor(float(gamma))))

    def forward(self, features: Tensor) -> Transition:
        """One matrix for all samples; the features are ignored."""
        return DenseTransition(torch.log_softmax(widened(self.logits), dim=0).unsqueeze(0))


class Fixed(TransitionNetwork):
    """T = S, nothing to learn: coarse probabilities are sums over children."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Nothing to create. Raises ConfigError from coarse to fine."""
        if self.down:
            raise ConfigError("the tree does not tell how a coarse class divides; fixed goes from fine to coarse only")

    def forward(self, features: Tensor) -> Transition:
        """The tree; the features are ignored."""
        return TreeTransition(self.parents, self.rows)


NETWORKS: dict[str, type[TransitionNetwork]] = {"low_rank": LowRank, "full": Full, "static": Static, "fixed": Fixed}


def create_transition(
    name: str,
    in_features: int,
    hierarchy: Hierarchy,
    level: int,
    *,
    rank: int = 2,
    gamma: float = 6.0,
    bias: bool = True,
    down: bool = False,
    form: Form = "auto",
    columns: Columns = USUAL,
    confused: bool = False,
) -> TransitionNetwork:
    """A transition network by name: low_rank, full, static or fixed."""
    if name not in NETWORKS:
        raise ConfigError(f"unknown transition {name!r}: {suggestion(name, NETWORKS)}")
    options: dict[str, Any] = {"rank": rank, "gamma": gamma, "bias": bias, "down": down}
    return NETWORKS[name](in_features, hierarchy, level, **options, form=form, columns=columns, confused=confused)
