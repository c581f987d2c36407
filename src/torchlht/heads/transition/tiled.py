"""The low-rank transition a few columns at a time: exact, in log space, without building (B, rows, columns) at once.

As in flash attention, the forward pass computes a tile of columns, uses it and forgets it; the backward pass computes it again.
O(rows + columns) numbers are kept per sample. With A = Q Lᵀ + γ S, ℓ_j = logsumexp_i A_ij and T_ij = exp(A_ij - ℓ_j), a tile
is only multiplied with narrow matrices, so its gradient is never built either:

    dA_ij = T_ij (h_i p_j - d_j + e_j (A_ij - ℓ_j - n_j) + f_j) - f_j / rows
    h_i = g_i / pᵏ_i,   d_j = p_j Σ_i T_ij h_i,   n_j = Σ_i T_ij log T_ij          e, f: gradients of the two confusion terms
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchlht.heads.transition.core import TILE, LowRankTransition, Prior, propagate, without_autocast
from torchlht.processes import shared_mean
from torchlht.vocabulary import Confusion

WIDTH = 32  # least columns of a tile, if one sample's rows allow
FAR = 60.0  # how far below the largest log p a result may be before float32 sums fail


@dataclass
class TiledTransition(LowRankTransition):
    """A low-rank transition whose matrices are never built, except by `log_matrix`.

    Attributes:
        confused: whether to compute the confusion terms, in the same pass.
    """

    confused: bool = False
    terms: tuple[Tensor, Tensor] | None = None

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, rows)."""
        if torch.compiler.is_exporting():  # a tile depends on the batch size, which exporters would fix
            return propagate(log_p, self.log_matrix())
        with without_autocast(log_p):
            gamma = self.gamma.to(self.left.dtype)
            most = max(1, TILE // (WIDTH * self.right.shape[1]))  # samples at a time, so that tiles do not get too narrow
            parts = zip(*(torch.split(x, most) for x in (self.left, self.right, log_p)), strict=True)
            found = [TiledStep.apply(left, right, gamma, p, self.prior, self.confused) for left, right, p in parts]
            result, *terms = (torch.cat(several) for several in zip(*found, strict=True))
            self.terms = (shared_mean(terms[0]), shared_mean(terms[1])) if self.confused else None
            return result

    def confusion(self, kind: Confusion) -> Tensor:
        """The confusion term from `propagate`, or computed now."""
        if self.terms is None:
            flat = self.left.new_full(self.left.shape[:2], -math.log(self.left.shape[1]))
            self.confused = True
            self.propagate(flat)
        assert self.terms is not None
        return self.terms[0 if kind == "entropy" else 1]

    def normaliser(self) -> Tensor:
        """Mean over samples and columns of ℓ_j, from KL(uniform ‖ T_·j) = ℓ_j - Σ_i A_ij / rows - log rows."""
        rows, columns = self.right.shape[1], self.left.shape[1]
        products = (self.right.mean(dim=1) * self.left.mean(dim=1)).sum(dim=1)
        mean = products + self.gamma * len(self.prior.rows) / (rows * columns) + math.log(rows)
        return self.confusion("kl") + shared_mean(mean)


class TiledStep(torch.autograd.Function):
    """(B, rows) log(T p), and per sample the mean over columns of n_j and of KL(uniform ‖ T_·j); zeros if not needed."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, gamma: Tensor, log_p: Tensor, prior: Prior, confused: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, rows) log(T p), and the two confusion terms (B,)."""
        rows, columns = right.shape[1], left.shape[1]
        log_z, entropies = torch.empty_like(log_p), torch.zeros_like(log_p)
        result = log_p.new_full((len(log_p), rows), -torch.inf)
        for part in tiles(left, right):
            tile, edges, local = _logits(left[:, part], right, gamma, prior, part)
            peak = tile.amax(dim=2)
            tile.sub_(peak.unsqueeze(2)).exp_()
            sums = tile.sum(dim=2)
            log_z[:, part] = peak + sums.log()
            log_q = log_p[:, part] - sums.log()
            scale = log_q.amax(dim=1, keepdim=True)
            found = torch.bmm(torch.exp(log_q - scale).unsqueeze(1), tile).squeeze(1)
            result = torch.logaddexp(result, found.log() + scale)
            if confused:
                mean = torch.bmm(tile, right) / sums.unsqueeze(2)
                on_tree = torch.zeros_like(sums).index_add_(1, local, _at(tile, edges, local)) / sums
                entropies[:, part] = (mean * left[:, part]).sum(dim=2) + gamma * on_tree - log_z[:, part]
        if (result < log_p.amax(dim=1, keepdim=True) - FAR).any():
            result = _careful(left, right, gamma, log_p, log_z, prior)
        kl = log_p.new_zeros(len(log_p))
        if confused:
            on_average = (right.mean(dim=1) * left.mean(dim=1)).sum(dim=1) + gamma * len(prior.rows) / (rows * columns)
            kl = log_z.mean(dim=1) - on_average - math.log(rows)
        ctx.save_for_backward(left, right, gamma, log_p, log_z, entropies, result)
        ctx.prior, ctx.confused = prior, confused
        return result, entropies.mean(dim=1), kl

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_entropy: Tensor, of_kl: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both factors, γ and log p, from recomputed tiles."""
        left, right, gamma, log_p, log_z, entropies, result = ctx.saved_tensors
        with without_autocast(gradient):
            scale = log_p.amax(dim=1, keepdim=True)
            far = bool((scale - result > FAR).any())
            sides = _Sides(right, gradient if far else gradient * torch.exp(scale - result), ctx.confused)
            weights = torch.exp(log_p - scale)
            of_left, of_log_p = torch.empty_like(left), torch.empty_like(log_p)
            of_gamma = torch.zeros_like(gamma)
            e, f = (one.unsqueeze(1) / left.shape[1] for one in (of_entropy, of_kl))  # (B, 1) per column
            for part in tiles(left, right):
                tile, edges, local = _logits(left[:, part], right, gamma, ctx.prior, part)
                if far:
                    shares = torch.exp(tile - log_z[:, part].unsqueeze(2) + log_p[:, part].unsqueeze(2) - result.unsqueeze(1))
                    moved = gradient.unsqueeze(1) * shares
                tile.sub_(log_z[:, part].unsqueeze(2)).exp_()
                some = left[:, part]
                mass, with_h, mean, squares = sides.times(tile)  # Σ_i T_ij of h_i, h_i q_i, q_i, q_i q_iᵀ
                w = weights[:, part]
                if far:
                    d, given = moved.sum(dim=2), torch.bmm(moved, right)
                    sides.moved += torch.bmm(moved.mT, some)
                    of_gamma += _at(moved, edges, local).sum()
                else:
                    d, given = w * mass, w.unsqueeze(2) * with_h
                    of_gamma += (_at(tile, edges, local) * sides.h[:, edges] * w[:, local]).sum()
                rest = -d
                if ctx.confused:
                    rest = rest + f - e * (log_z[:, part] + entropies[:, part])
                    given = given + e.unsqueeze(2) * (squares @ some.unsqueeze(3)).squeeze(3)
                    on_tree = gamma * e * _at(tile, edges, local)  # for the γ in A_ij, if there is one
                    given = given.index_add(1, local, on_tree.unsqueeze(2) * right[:, edges])
                    sides.moved.index_add_(1, edges, on_tree.unsqueeze(2) * some[:, local])
                    inner = (right[:, edges] * some[:, local]).sum(dim=2) + gamma
                    of_gamma += (_at(tile, edges, local) * e * inner).sum()
                of_gamma += (_at(tile, edges, local) * rest[:, local]).sum()
                of_left[:, part] = given + rest.unsqueeze(2) * mean
                of_log_p[:, part] = d
                sides.add(tile, None if far else w, rest, e, some)
            of_right = sides.right_gradient()
            if ctx.confused:
                rows = right.shape[1]
                of_left -= f.unsqueeze(2) * right.mean(dim=1, keepdim=True)
                of_right -= f.unsqueeze(2) * left.sum(dim=1, keepdim=True) / rows
                of_gamma -= f.sum() * len(ctx.prior.rows) / rows
            return of_left, of_right, of_gamma, of_log_p, None, None


class _Sides:
    """The narrow matrices to multiply tiles with, and the sums over tiles for the gradient of Q."""

    def __init__(self, right: Tensor, h: Tensor, confused: bool) -> None:
        self.right, self.h, self.confused = right, h, confused
        self.rank = right.shape[2]
        parts = [h.unsqueeze(2), h.unsqueeze(2) * right, right]
        if confused:
            parts.append(_outer(right))
        self.stack = torch.cat(parts, dim=2)
        self.with_w, self.with_rest, self.moved = (torch.zeros_like(right) for _ in range(3))
        self.outer = right.new_zeros(*right.shape[:2], self.rank**2 if confused else 0)

    def times(self, tile: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sums over the rows of a tile, per column."""
        s, found = self.rank, torch.bmm(tile, self.stack)
        squares = found[:, :, 1 + 2 * s :]
        return (
            found[:, :, 0],
            found[:, :, 1 : 1 + s],
            found[:, :, 1 + s : 1 + 2 * s],
            squares.view(*squares.shape[:2], s, s) if self.confused else squares,
        )

    def add(self, tile: Tensor, w: Tensor | None, rest: Tensor, e: Tensor, some: Tensor) -> None:
        """Sums over the columns of a tile, per row."""
        s = self.rank
        parts = [rest.unsqueeze(2) * some]
        parts += [] if w is None else [w.unsqueeze(2) * some]
        parts += [e.unsqueeze(2) * _outer(some)] if self.confused else []
        found = torch.bmm(torch.cat(parts, dim=2).mT, tile).mT
        self.with_rest += found[:, :, :s]
        if w is not None:
            self.with_w += found[:, :, s : 2 * s]
        if self.confused:
            self.outer += found[:, :, -(s**2) :]

    def right_gradient(self) -> Tensor:
        """(B, rows, s)"""
        found = self.h.unsqueeze(2) * self.with_w + self.with_rest + self.moved
        if self.confused:
            squares = self.outer.view(*self.outer.shape[:2], self.rank, self.rank)
            found = found + (squares @ self.right.unsqueeze(3)).squeeze(3)
        return found


def tiles(left: Tensor, right: Tensor) -> list[slice]:
    """Runs of columns with about `TILE` entries each, over all samples and rows."""
    width = max(1, TILE // max(1, len(right) * right.shape[1]))
    return [slice(a, min(a + width, left.shape[1])) for a in range(0, left.shape[1], width)]


def _logits(some: Tensor, right: Tensor, gamma: Tensor, prior: Prior, part: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Aᵀ of some columns, (B, columns, rows), and the rows and (local) columns where γ is in it."""
    tile = torch.bmm(some, right.mT)
    inside = slice(prior.starts[part.start], prior.starts[part.stop])
    edges, local = prior.rows[inside], prior.columns[inside] - part.start
    places = (local * tile.shape[2] + edges).expand(len(tile), -1)
    tile.flatten(1).scatter_add_(1, places, gamma.expand(places.shape))
    return tile, edges, local


def _at(tile: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(B, E) the entries at these places."""
    return tile.flatten(1).index_select(1, columns * tile.shape[2] + rows)


def _outer(x: Tensor) -> Tensor:
    """(B, n, s²) the outer product of each row with itself."""
    return (x.unsqueeze(3) * x.unsqueeze(2)).flatten(2)


def _careful(left: Tensor, right: Tensor, gamma: Tensor, log_p: Tensor, log_z: Tensor, prior: Prior) -> Tensor:
    """log(T p) entirely in log space: two exponentials per entry, for results that would underflow."""
    result = log_p.new_full(right.shape[:2], -torch.inf)
    for part in tiles(left, right):
        tile, _, _ = _logits(left[:, part], right, gamma, prior, part)
        tile.add_((log_p[:, part] - log_z[:, part]).unsqueeze(2))
        result = torch.logaddexp(result, torch.logsumexp(tile, dim=1))
    return result
