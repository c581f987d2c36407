"""From probabilities to answers: rules that choose one class per level. They apply to any method's `Prediction`.

own        the method's own way, which for most is argmax
argmax     the most probable class of each level by itself; levels may disagree
backtrack  the most probable finest class, and its ancestors
top_down   the most probable coarsest class, then the most probable of its children, and so on
path       the path with the largest product of its probabilities over all levels
crm        the path with the least expected height of the lowest common ancestor (Karthik et al., ICLR 2021)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor

from torchlht.errors import ConfigError, suggestion
from torchlht.hierarchy import Hierarchy
from torchlht.prediction import Prediction
from torchlht.transition import sum_children
from torchlht.vocabulary import Rule


def decide(prediction: Prediction, hierarchy: Hierarchy, rule: Rule = "own") -> Prediction:
    """The same prediction, with answers chosen by a rule."""
    if rule not in get_args(Rule):
        raise ConfigError(f"unknown rule {rule!r}: {suggestion(rule, get_args(Rule))}")
    if rule == "own":
        return prediction
    return dataclasses.replace(prediction, choice=RULES[rule](prediction.log_probs, hierarchy))


def argmax(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable class of each level."""
    return torch.stack([log_p.argmax(dim=1) for log_p in log_probs], dim=1)


def backtrack(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable finest class and its ancestors."""
    return ancestors_of(log_probs[0].argmax(dim=1), hierarchy)


def top_down(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
    """(B, K) the most probable coarsest class, and at each step down the most probable child."""
    chosen = [log_probs[-1].argmax(dim=1)]
    for k in reversed(range(len(hierarchy) - 1)):
        parents = _parents(hierarchy, k, log_probs[k])
        outside = parents.unsqueeze(0) != chosen[-1].unsqueeze(1)  # (B, C_k)
        inside = log_probs[k].clamp(min=torch.finfo(log_probs[k].dtype).min)  # also a probability of 0 comes before outside
        chosen.append(inside.masked_fill(outside, -torch.inf).argmax(dim=1))
    return torch.stack(chosen[::-1], dim=1)


def path(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
    """(B, K) the path with the largest Σ_k log pᵏ."""
    total = log_probs[-1]
    for k in reversed(range(len(hierarchy) - 1)):
        total = log_probs[k] + total[:, _parents(hierarchy, k, log_probs[k])]  # (B, C_k)
    return ancestors_of(total.argmax(dim=1), hierarchy)


def crm(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
    """(B, K) the finest class c with the least Σ_i p_i d(i, c), and its ancestors; d is the height of the common ancestor."""
    return ancestors_of(crm_scores(log_probs[0], hierarchy).argmax(dim=1), hierarchy)


def crm_scores(log_p: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B, C_1) what crm ranks finest classes by: the number of levels less Σ_i p_i d(i, c).

    d counts the levels on which two classes have different ancestors, so this is Σ_k P_k[ancestor of c], with P_k the sum of p
    over a class's descendants: linear in the classes, no matrix of distances.
    """
    log_p = torch.log_softmax(log_p, dim=1)  # a distribution already, unless the method has a sigmoid per class
    mass = [log_p]
    for k in range(len(hierarchy) - 1):
        mass.append(sum_children(mass[-1], _parents(hierarchy, k, log_p), hierarchy.sizes[k + 1]))
    saved = mass[-1].exp()
    for k in reversed(range(len(hierarchy) - 1)):
        saved = mass[k].exp() + saved[:, _parents(hierarchy, k, log_p)]  # (B, C_k)
    return saved


RULES: dict[str, Callable[[tuple[Tensor, ...], Hierarchy], Tensor]] = {
    "argmax": argmax,
    "backtrack": backtrack,
    "top_down": top_down,
    "path": path,
    "crm": crm,
}


def ancestors_of(leaves: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B, K) finest classes (B,) with their ancestors, fine first."""
    found = [leaves]
    for k in range(len(hierarchy) - 1):
        found.append(_parents(hierarchy, k, leaves)[found[-1]])
    return torch.stack(found, dim=1)


def _parents(hierarchy: Hierarchy, level: int, like: Tensor) -> Tensor:
    return torch.as_tensor(hierarchy.parents[level].copy(), device=like.device)
