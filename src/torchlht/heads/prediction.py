"""`Prediction`: what every method returns, and all that losses, metrics and answers read. And rules of answering, and losses.

A rule is a function with `@rule`: it takes the log-probabilities of every level, fine first, and the tree, and returns the
answer at each level. Everything that lists, checks or measures rules reads the register here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchlht.doors import entrance
from torchlht.errors import ConfigError, suggestion
from torchlht.heads.transition.core import Transition, sum_children
from torchlht.hierarchy.tree import Hierarchy
from torchlht.processes import shared_count
from torchlht.vocabulary import Confusion, Reduction


@dataclass(frozen=True)
class Prediction:
    """Log-probabilities at every level for one batch, fine first, and the transitions that led to them, if any.

    Attributes:
        log_probs: one (B, C_k) tensor per level. Most methods give a distribution over the classes of a level; one with a
            sigmoid per class gives each class its own probability, and a row need not sum to one.
        transitions: one per adjacent pair of levels for methods that have them, else empty.
        choice: (B, K) answers, if they are not simply the most probable class of each level.
        scores: (B, C_1) scores by which a rule ranks the finest classes, if not by their probability.
        sigmoid: levels with a sigmoid per class. Rows that do not sum to one also show this, but saturated rows do sum to one.
        distance: (B,) how far the features are from those of training samples, if that is known; see `answer.novelty`.
    """

    log_probs: tuple[Tensor, ...]
    transitions: tuple[Transition, ...] = ()
    choice: Tensor | None = None
    scores: Tensor | None = None
    sigmoid: tuple[int, ...] = ()
    distance: Tensor | None = None

    def __repr__(self) -> str:
        classes = ", ".join(str(log_p.shape[1]) for log_p in self.log_probs)
        return f"{type(self).__name__}({len(self.log_probs[0])} samples; classes, fine first: {classes})"

    def probs(self, level: int) -> Tensor:
        """(B, C_k) probabilities at a level, 0 = finest."""
        return self.log_probs[level].exp()

    def chosen(self) -> Tensor:
        """(B, K) the class answered at each level, fine first."""
        if self.choice is not None:
            return self.choice
        return torch.stack([log_p.argmax(dim=1) for log_p in self.log_probs], dim=1)

    def first(self, count: int) -> Prediction:
        """The prediction for the first `count` samples, without transitions."""
        choice = None if self.choice is None else self.choice[:count]
        return Prediction(tuple(log_p[:count] for log_p in self.log_probs), choice=choice, sigmoid=self.sigmoid)

    def ranked(self, k: int) -> Tensor:
        """(B, k) finest classes, or all if there are fewer: the answer first, the others by `scores` or else by probability."""
        scores = self.log_probs[0] if self.scores is None else self.scores
        first = scores.scatter(1, self.chosen()[:, :1], torch.inf)
        return first.topk(min(k, first.shape[1]), dim=1).indices

    def transition(self, level: int) -> Tensor:
        """(B, C_{k+1}, C_k): the matrices from `level` to the next coarser one; columns sum to one."""
        if not self.transitions:
            raise ValueError("this method has no transitions between its levels")
        matrix = self.transitions[level].log_matrix().exp()
        return matrix.expand(len(self.log_probs[0]), -1, -1)


# ---- rules: one class per level, from any method's prediction --------------------------------------------------------

LogProbs = tuple[Tensor, ...]
Reading = Callable[[LogProbs, Hierarchy], Tensor]


@dataclass(frozen=True)
class Rule:
    """A rule of answering.

    Attributes:
        meaning: one line about what it answers.
        choose: log-probabilities to (B, K) classes; None for the method's own choice.
        scores: log-probabilities to (B, C_1) scores that rank the finest classes, if not by their probability.
        consistent: whether its answers always lie on one path of the tree.
    """

    meaning: str
    choose: Reading | None
    scores: Reading | None = None
    consistent: bool = False


RULES: dict[str, Rule] = {"own": Rule("the method's own way, which is mostly argmax", None)}


def rule(name: str, meaning: str, *, ranks: bool = False, consistent: bool = False) -> Callable[[Reading], Reading]:
    """Decorator: register a function as a rule.

    Args:
        name: its name, also on the command line.
        meaning: one line about what it answers.
        ranks: the function returns (B, C_1) scores; the answer is the finest class with the highest score, and its ancestors.
        consistent: its answers always lie on one path of the tree; a rule that ranks does so anyway.
    """

    def enter(function: Reading) -> Reading:
        one_path = Rule(meaning, _best_by(function), function, consistent=True)
        RULES[name] = one_path if ranks else Rule(meaning, function, consistent=consistent)
        return function

    return enter


def find_rule(name: str) -> Rule:
    """A rule by name. Raises ConfigError, with the nearest name, when it is unknown."""
    if name not in RULES:
        raise ConfigError(f"unknown rule {name!r}: {suggestion(name, RULES)}")
    return RULES[name]


@entrance
def decide(prediction: Prediction, hierarchy: Hierarchy, rule: str = "own") -> Prediction:
    """The prediction with answers chosen by a rule. Raises ConfigError if the rule is unknown."""
    found = find_rule(rule)
    if found.choose is None:
        return prediction
    if found.scores is None:
        return dataclasses.replace(prediction, choice=found.choose(prediction.log_probs, hierarchy), scores=None)
    scores = found.scores(prediction.log_probs, hierarchy)
    return dataclasses.replace(prediction, choice=ancestors_of(scores.argmax(dim=1), hierarchy), scores=scores)


def consistent_rule(own: str) -> str:
    """The rule of answers to people: a method's own if its answers lie on one path of the tree, else `path`."""
    return own if find_rule(own).consistent else "path"


def answer_by(prediction: Prediction, hierarchy: Hierarchy, rule: str) -> Prediction:
    """The prediction decided by a rule; if that answers a path of the tree, with probabilities that fall along every path."""
    decided = decide(prediction, hierarchy, rule)
    return monotone(decided, hierarchy) if find_rule(rule).consistent else decided


def monotone(prediction: Prediction, hierarchy: Hierarchy) -> Prediction:
    """The prediction with no class more probable than its parent: p̃ᵏ_c = min(pᵏ_c, p̃ᵏ⁺¹ of its parent), coarsest first.

    The answers stay. What the coarsest level says stays, too; below, rows may sum to less than one.
    """
    found = [prediction.log_probs[-1]]
    for k in reversed(range(len(hierarchy) - 1)):
        log_p = prediction.log_probs[k]
        found.append(torch.minimum(log_p, found[-1][:, _parents(hierarchy, k, log_p)]))
    return dataclasses.replace(prediction, log_probs=tuple(found[::-1]), choice=prediction.chosen(), transitions=())


def own_choice(log_probs: LogProbs, hierarchy: Hierarchy, rule: str) -> Tensor | None:
    """The `choice` for the prediction of a method that answers by this rule; None for argmax, the default."""
    choose = find_rule(rule).choose
    return None if choose is None or rule == "argmax" else choose(log_probs, hierarchy)


def ancestors_of(leaves: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B, K) finest classes (B,) with their ancestors, fine first."""
    found = [leaves]
    for k in range(len(hierarchy) - 1):
        found.append(_parents(hierarchy, k, leaves)[found[-1]])
    return torch.stack(found, dim=1)


def _best_by(scores: Reading) -> Reading:
    return lambda log_probs, hierarchy: ancestors_of(scores(log_probs, hierarchy).argmax(dim=1), hierarchy)


def _parents(hierarchy: Hierarchy, level: int, like: Tensor) -> Tensor:
    return torch.as_tensor(hierarchy.parents[level].copy(), device=like.device)


# ---- the rules -----------------------------------------------------------------------------------------------------


@rule("argmax", "the most probable class of each level by itself; levels may disagree")
def argmax(log_probs: LogProbs, hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable class of each level."""
    return torch.stack([log_p.argmax(dim=1) for log_p in log_probs], dim=1)


@rule("backtrack", "the most probable finest class, and its ancestors", consistent=True)
def backtrack(log_probs: LogProbs, hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable finest class and its ancestors."""
    return ancestors_of(log_probs[0].argmax(dim=1), hierarchy)


@rule("top_down", "the most probable coarsest class, then the most probable of its children, and so on", consistent=True)
def top_down(log_probs: LogProbs, hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable coarsest class, and at each step down the most probable child."""
    chosen = [log_probs[-1].argmax(dim=1)]
    for k in reversed(range(len(hierarchy) - 1)):
        parents = _parents(hierarchy, k, log_probs[k])
        outside = parents.unsqueeze(0) != chosen[-1].unsqueeze(1)  # (B, C_k)
        inside = log_probs[k].clamp(min=torch.finfo(log_probs[k].dtype).min)  # a probability of 0 inside still beats outside
        chosen.append(inside.masked_fill(outside, -torch.inf).argmax(dim=1))
    return torch.stack(chosen[::-1], dim=1)


@rule("path", "the path with the largest product of its probabilities over all levels", ranks=True)
def path_scores(log_probs: LogProbs, hierarchy: Hierarchy) -> Tensor:
    """(B, C_1) Σ_k log pᵏ of the path to each finest class."""
    total = log_probs[-1]
    for k in reversed(range(len(hierarchy) - 1)):
        total = log_probs[k] + total[:, _parents(hierarchy, k, log_probs[k])]  # (B, C_k)
    return total


@rule("crm", "the path with the least expected distance in the tree (Karthik et al., ICLR 2021)", ranks=True)
def crm_scores(log_probs: LogProbs, hierarchy: Hierarchy) -> Tensor:
    """(B, C_1) K - Σ_i p_i d(i, c) for each finest class c, with d the height of the lowest common ancestor.

    d counts the levels on which two classes have different ancestors, so this is Σ_k P_k[ancestor of c], with P_k the sum of
    p¹ over a class's descendants: linear in the classes, no matrix of distances.
    """
    log_p = torch.log_softmax(log_probs[0], dim=1)  # changes nothing unless the method has a sigmoid per class
    mass = [log_p]
    for k in range(len(hierarchy) - 1):
        mass.append(sum_children(mass[-1], _parents(hierarchy, k, log_p), hierarchy.sizes[k + 1]))
    saved = mass[-1].exp()
    for k in reversed(range(len(hierarchy) - 1)):
        saved = mass[k].exp() + saved[:, _parents(hierarchy, k, log_p)]  # (B, C_k)
    return saved


# ---- losses shared by methods; what is divided by a number of samples is divided by that of all processes ------------


def masked_cross_entropy(log_probs: Sequence[Tensor], labels: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """Cross-entropy at every level over the samples whose label is known there.

    Args:
        log_probs: one (B, C_k) tensor per level.
        labels: (B, K) class indices in the same order of levels, -1 where unknown.
        reduction: `per_level_mean` takes the mean over the known samples of a level, then the mean over levels. A level
            with few labels weighs as much as one with many. `per_sample` sums over levels and divides by B, as the
            paper's equation does. Under masking they differ widely: one fine label among 8 samples counts 1 or 1/8.
    """
    if labels.dim() != 2 or labels.shape[1] != len(log_probs):
        raise ValueError(f"labels are {tuple(labels.shape)}, expected (batch, {len(log_probs)}): one column per level")
    total = log_probs[0].new_zeros(())
    for log_p, y in zip(log_probs, labels.unbind(1), strict=True):
        picked = log_p.gather(1, y.clamp(min=0).unsqueeze(1)).squeeze(1)  # (B,)
        total = total + masked_mean(-picked, y >= 0, reduction)
    return total / len(log_probs) if reduction == "per_level_mean" else total


def soft_cross_entropy(
    log_probs: Sequence[Tensor],
    labels: Tensor,
    index: Tensor,
    value: Tensor,
    weight: Tensor,
    ancestors: Sequence[Tensor],
    reduction: Reduction = "per_level_mean",
    shares: Sequence[float] | None = None,
) -> Tensor:
    """Cross-entropy with a distribution over finest classes as the target, at the levels where a sample has no label.

    The target of a coarser level is that distribution summed over children. Cross-entropy is linear in its target, so nothing
    needs to be summed. Outputs that are not a distribution (a sigmoid per class) are normalised first.

    Args:
        log_probs: one (B, C_k) tensor per level, fine first.
        labels: (B, K), -1 where unknown; the target is used there.
        index: (B, m) finest classes of the target.
        value: (B, m) their probabilities; zeros for a sample without a target.
        weight: (B,) how much each sample counts.
        ancestors: per level (C_1,), the class of that level above each finest class.
        reduction: `per_level_mean` takes the weighted mean over samples, then the mean over levels; `per_sample` the sum over
            levels divided by B. As in `masked_cross_entropy`.
        shares: a factor for each level's term.
    """
    total = log_probs[0].new_zeros(())
    for k, (log_p, y) in enumerate(zip(log_probs, labels.unbind(1), strict=True)):
        picked = torch.log_softmax(log_p, dim=1).gather(1, ancestors[k][index])
        picked = torch.where(value > 0, picked, 0.0)
        counted = torch.where((y < 0) & (value.sum(dim=1) > 0), weight, 0.0)
        summed = -(counted * (value * picked).sum(dim=1)).sum()
        count = counted.sum() if reduction == "per_level_mean" else torch.ones_like(y).sum()
        term = summed / shared_count(count, least=1e-6)
        total = total + (1.0 if shares is None else shares[k]) * term
    return total / len(log_probs) if reduction == "per_level_mean" else total


def towards_uniform(log_probs: Sequence[Tensor], labels: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """Cross-entropy of every known level with the uniform distribution: the term that label smoothing adds."""
    total = log_probs[0].new_zeros(())
    for log_p, y in zip(log_probs, labels.unbind(1), strict=True):
        total = total + masked_mean(-torch.log_softmax(log_p, dim=1).mean(dim=1), y >= 0, reduction)
    return total / len(log_probs) if reduction == "per_level_mean" else total


def masked_mean(values: Tensor, known: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """The sum of the known values divided by their number, or by B with `per_sample`; 0 when none is known.

    Args:
        values: (B,)
        known: (B,) bool
        reduction: see `masked_cross_entropy`.
    """
    summed = torch.where(known, values, torch.zeros_like(values)).sum()
    counted = known if reduction == "per_level_mean" else torch.ones_like(known)
    return summed / shared_count(counted.sum())


def masked_binary_cross_entropy(logits: Sequence[Tensor], labels: Tensor, positive: Sequence[Tensor] | None = None) -> Tensor:
    """Binary cross-entropy of every class of every known level; an unknown level has no entries.

    It is the mean over the known entries, so that masking does not change the scale, times the mean number of classes of a
    level, so that steps of SGD are as large as with cross-entropy.

    Args:
        logits: one (B, C_k) tensor per level.
        labels: (B, K), -1 where unknown.
        positive: per level, (B,) logits to use for the true class instead of its own.
    """
    total, entries = logits[0].new_zeros(()), logits[0].new_zeros(())
    for k, (z, y) in enumerate(zip(logits, labels.unbind(1), strict=True)):
        known, index = y >= 0, y.clamp(min=0).unsqueeze(1)
        right = z.gather(1, index).squeeze(1) if positive is None else positive[k]
        wrong = F.softplus(z).scatter(1, index, 0.0).sum(dim=1)
        total = total + torch.where(known, F.softplus(-right) + wrong, 0.0).sum()
        entries = entries + known.sum() * z.shape[1]
    return total / shared_count(entries) * (sum(z.shape[1] for z in logits) / len(logits))


def confusion(transitions: Sequence[Transition], kind: Confusion, reduction: Reduction = "per_level_mean") -> Tensor:
    """The confusion term over all transitions: averaged with `per_level_mean`, summed with `per_sample` (the paper)."""
    terms = torch.stack([transition.confusion(kind) for transition in transitions])
    return terms.mean() if reduction == "per_level_mean" else terms.sum()


def drift(transitions: Sequence[Transition], gammas: Sequence[float], reduction: Reduction = "per_level_mean") -> Tensor:
    """How far low-rank transitions are from the column softmax of each one's γ S; averaged or summed as in `confusion`."""
    terms = torch.stack([transition.drift(gamma) for transition, gamma in zip(transitions, gammas, strict=True)])
    return terms.mean() if reduction == "per_level_mean" else terms.sum()
