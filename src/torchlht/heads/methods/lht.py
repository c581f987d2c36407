"""`lht`: Label Hierarchy Transition (Wang et al., arXiv 2112.02353).

    u_1 ─► classifier ─► log p¹ ──► T² ──► log p² ──► … ──► Tᴷ ──► log pᴷ
                                    ▲                      ▲
                           u_2 ─► transition network    u_K ─► transition network

Cross-entropy at every known level trains all of it end to end, so a coarse label moves the fine classifier: the gradient of
level k's loss in the fine logit z_j is (1 - t_j / pᵏ_y) p¹_j, with t the row y of Tᵏ…T².

That holds only while T leaves the label to p¹. A transition per image can learn the coarse labels by heart, past the
classifier: with few classes that look alike it put a third of the mass off the tree and lost 4 points at the finest level.
So the default holds T near the tree, by λ₀ KL(softmax(γ₀ S) ‖ T); see `benchmarks/small_trees.md`. Where labels say that the
tree is wrong, S follows the labels; see `benchmarks/prior.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from torchlht.data.moments import PART
from torchlht.data.samples import Ints
from torchlht.doors import NotNegative, Number, OpenShare, Rank, Width
from torchlht.errors import ConfigError
from torchlht.heads.method import Classifier, Method, Neck, register, variant
from torchlht.heads.prediction import Prediction, confusion, drift, masked_cross_entropy
from torchlht.heads.starting import discriminant
from torchlht.heads.transition.core import widened, without_autocast
from torchlht.heads.transition.networks import LowRank, TransitionNetwork, create_transition, gamma_for
from torchlht.heads.transition.truncated import Columns
from torchlht.heads.transition.yielding import counted_parents, moves
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Confusion, Features, Form, Reduction, Start, TransitionName

if TYPE_CHECKING:
    from torchlht.heads.guessing import Opinion

HELD = 10.0  # default weight of the drift from the tree; chosen in benchmarks/small_trees.md
LATE = 0.85  # with `schedule=step`, the share of training after which transitions learn; see benchmarks/peers.md
STRONG = 3.0  # from this γ₀ on; a weaker prior is meant to be left
MANY = 1000  # from this many finest classes on, the classifier starts from class means; benchmarks/ten_thousand.md
LOOKED = 2**14  # samples that the neck's statistics are taken from at the start

PAPER = "Wang et al., Label Hierarchy Transition, arXiv 2112.02353"


@register("lht", paper=PAPER)
class LHTHead(Method):
    """Fine classes first; a learned transition per image gives each coarser level.

    The LHT head, for any network that returns features:

        >>> head = LHTHead(in_features=2048, hierarchy=tree)
        >>> prediction = head(backbone(images))
        >>> loss = head.loss(prediction, labels)         # labels (B, K), fine first, -1 = unknown

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        features: whether all levels share features, `shared`, which was 7 points better on real birds, or each has its own part
            of them, `split`, as in the paper.
        width: width of the hidden layer; wider hurt on real birds.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
        transition: how T is made: `low_rank`, from each image; `full`, the same with every entry free; `static`, one matrix for
            all images; or `fixed`, the tree itself (T = S, nothing learned).
        rank: rank s of the low-rank transition.
        gamma: initial weight γ₀ of the tree in the transition. With 1, as in the paper, a column starts almost flat. By default
            6, more with more than 38 parents: a column starts at 0.9 on the true one, which works better.
        prior_weight: λ₀, what holds the transition near softmax(γ₀ S). By default 10 for `low_rank` with gamma from 3 on, else
            0: a weak prior is meant to be left. The paper has no such term.
        bias: whether the transition's linear layers have a bias (the public code has one, the paper's formula does not).
        confusion: `entropy` (the paper) or `kl` (its scripts): what keeps the columns of T from collapsing.
        confusion_weight: λ of the confusion term. 0 by default: 0.01 gained nothing measurable, more was worse.
        form: how the low-rank transition is computed: `plain`, whole matrices; `tiled`, exactly the same in little memory;
            `truncated`, the most probable columns only, and the rest by the tree; `auto` chooses by the size of each level.
        columns: for `truncated`: how many columns to compute per sample.
        tail: for `truncated`: instead, compute enough columns to leave out at most this share of the probability.
        yields: whether the tree yields to labels. Where samples that are labelled at two levels put a class under another
            parent, the transition follows them: see `heads/transition/yielding.py`. By default for `low_rank` with gamma from
            3 on.
        start: how the classifier starts on features: at `random`, or from the class `means` of the training samples, see
            `heads/starting.py`; `auto` takes the means from 1,000 finest classes on.

    Raises:
        ConfigError: when the transition or confusion is unknown, `fixed`, which does not learn, has a confusion weight, or one
            that is not `low_rank` a prior weight, or is to yield.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"gamma": (1.0, None)}
    before: ClassVar[dict[str, Any]] = {"prior_weight": 0.0, "gamma": 6.0, "start": "random", "yields": False}
    can_shorten: ClassVar[bool] = True

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
        transition: TransitionName = "low_rank",
        rank: Rank = 2,
        gamma: Number | None = None,
        prior_weight: NotNegative | None = None,
        bias: bool = True,
        confusion: Confusion = "entropy",
        confusion_weight: NotNegative = 0.0,
        form: Form = "auto",
        columns: Width = 64,
        tail: OpenShare | None = None,
        start: Start = "auto",
        yields: bool | None = None,
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        if confusion_weight and transition == "fixed":
            raise ConfigError("a confusion weight needs a transition that learns; with transition fixed leave it at 0")
        low_rank, strong = transition == "low_rank", gamma is None or gamma >= STRONG
        if prior_weight and (not low_rank or (gamma is not None and gamma < 0)):
            raise ConfigError("a prior weight needs transition low_rank and a gamma that is not negative; else leave it at 0")
        self.prior_weight = (HELD if low_rank and strong else 0.0) if prior_weight is None else prior_weight
        if yields and not low_rank:
            raise ConfigError("only transition low_rank can yield to labels; leave `yields` out")
        self.yields = low_rank and strong if yields is None else yields
        self.gamma = gamma
        self.gammas = [gamma_for(rows) if gamma is None else gamma for rows in hierarchy.sizes[1:]]
        self.start: Start = start
        self.confusion: Confusion = confusion
        self.confusion_weight = confusion_weight
        self.neck = Neck(in_features, len(hierarchy), features=features, width=width)
        self.classifier = Classifier(self.neck.width, hierarchy.sizes[0])
        self.shortcut: nn.Linear | None = None
        self.register_load_state_dict_pre_hook(expect_shortcut)  # type: ignore[no-untyped-call]
        self.steps = nn.ModuleList(
            create_transition(
                transition,
                self.neck.width,
                hierarchy,
                level,
                rank=rank,
                gamma=self.gammas[level],
                bias=bias,
                form=form,
                columns=Columns(columns, tail),
                confused=confusion_weight > 0,
            )
            for level in range(len(hierarchy) - 1)
        )

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level, and the transitions between levels."""
        fine, *coarser = self.neck(features)
        logits = self.classifier(fine) if self.shortcut is None else self.classifier(fine) + self.shortcut(features)
        log_probs = [torch.log_softmax(widened(logits), dim=1)]  # (B, C_1)
        transitions = [step(u) for step, u in zip(self.steps, coarser, strict=True)]
        for transition in transitions:
            log_probs.append(transition.propagate(log_probs[-1]))  # (B, C_k)
        return Prediction(tuple(log_probs), tuple(transitions))

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy at every known level, plus λ times the confusion term and λ₀ times the drift, which need no labels."""
        loss = masked_cross_entropy(prediction.log_probs, labels, self.reduction)
        if self.confusion_weight and prediction.transitions:
            loss = loss + self.confusion_weight * confusion(prediction.transitions, self.confusion, self.reduction)
        if self.prior_weight and prediction.transitions:
            loss = loss + self.prior_weight * drift(prediction.transitions, self.gammas, self.reduction)
        return loss

    def heed(self, labels: Tensor) -> list[str]:
        """Let the tree yield where labels contradict it; tells which classes have moved."""
        told = []
        for k, step in enumerate(self.steps):
            if not (self.yields and isinstance(step, LowRank)):
                continue
            own = self.hierarchy.parents[k]
            parents = counted_parents(labels[:, k].cpu().numpy(), labels[:, k + 1].cpu().numpy(), own)
            if moved := np.flatnonzero(parents != own).tolist():
                step.move(torch.from_numpy(parents))
                told.append(self._told(k, moved, parents))
        return told

    def yielded(self) -> list[str]:
        """Where labels have moved classes, a sentence for each level."""
        followed = [(k, step.parents) for k, step in enumerate(self.steps) if isinstance(step, LowRank)]
        return [said for k, parents in followed if (said := moves(self.hierarchy, k, parents.cpu().numpy()))]

    def _told(self, k: int, moved: list[int], parents: Ints) -> str:
        tree = self.hierarchy
        name, there = tree.text(k, moved[0]), tree.text(k + 1, int(parents[moved[0]]))
        some = f"{len(moved):,} of {tree.sizes[k]:,} classes at the level {tree.levels[k]}"
        return f"labels contradict the tree about {some}, such as {name}: {there}; the transition follows the labels there"

    def begin(self, features: Tensor, labels: Tensor) -> None:
        """Start the classifier from class means, if `start` says so. The neck's statistics become those of the features."""
        if self.start == "random" or (self.start == "auto" and self.hierarchy.sizes[0] < MANY):
            return
        like, training = self.classifier.weight, self.training
        with torch.no_grad(), without_autocast(like):
            self.neck.pair()
            self.neck.look(features[:: len(features) // LOOKED + 1].to(like))
            parts = zip(torch.split(features, PART), torch.split(labels, PART), strict=True)
            batches = ((widened(self.neck(x.to(like))[0]).cpu(), y.cpu(), None) for x, y in parts)
            weight, bias = discriminant(batches, self.hierarchy, self.neck.width)
            self.classifier.weight.copy_(weight)
            self.classifier.bias.copy_(bias if self.classifier.log_scale is None else torch.zeros_like(bias))
        self.neck.train(training)

    def end(self, opinion: Opinion, share: float) -> None:
        """Add a shortcut from features to logits: the linear discriminant errs elsewhere than the network does."""
        self.shortcut = opinion.layer(share).to(self.classifier.weight)

    def reached(self, share: float) -> None:
        """Transitions that are held near the tree learn late. Until then the classifier learns from the tree itself."""
        for step in self.steps:
            if isinstance(step, LowRank):
                step.held = self.prior_weight > 0 and share < LATE

    def idle(self) -> list[nn.Parameter]:
        """Weights of transitions that are held."""
        return [p for step in self.steps if isinstance(step, LowRank) for p in step.idle()]

    def scalars(self) -> dict[str, float]:
        """γ of each transition, by the level it leads to."""
        found: dict[str, float] = {}
        for level, step in zip(self.hierarchy.levels[1:], self.steps, strict=True):
            assert isinstance(step, TransitionNetwork)
            found |= {f"{name}_{level}": value for name, value in step.scalars().items()}
        return found


def expect_shortcut(method: Method, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
    """Before weights are loaded, make room for a shortcut if they have one, and only then."""
    assert isinstance(method, LHTHead)
    weight = state.get(f"{prefix}shortcut.weight")
    method.shortcut = None if weight is None else nn.Linear(weight.shape[1], weight.shape[0]).requires_grad_(False).to(weight)


variant(
    "lht-paper",
    LHTHead,
    "LHT as published: split features, γ₀ = 1, confusion term with λ = 0.01, random start.",
    paper=PAPER,
    features="split",
    gamma=1.0,
    confusion_weight=0.01,
    start="random",
)
variant(
    "lht-simplified",
    LHTHead,
    "One learned transition for all images; it starts at γ₀ S.",
    paper=PAPER,
    transition="static",
)
variant(
    "lht-full",
    LHTHead,
    "Every entry of the transition free, per image, and no prior from the tree.",
    paper=PAPER,
    transition="full",
    grid={},
)
