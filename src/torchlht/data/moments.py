"""Mean, variance and products of features: what a linear view of them needs, in one pass over parts that fit in the cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-5  # added to variances, as BatchNorm does
PART = 2**12  # samples at a time
BLOCK = 256  # features at a time


@dataclass(frozen=True)
class Moments:
    """Of features (N, d): mean (d,), variance (d,), the mean of z zᵀ (d, d) with z those of a sample, standardised; and N.

    A sample that counts several times is several samples.
    """

    mean: Tensor
    variance: Tensor
    products: Tensor
    count: float

    @classmethod
    def of(cls, x: Tensor, weights: Tensor | None = None) -> Moments:
        """Of all features; weights (N,) say how often each sample counts."""
        often = torch.ones(len(x)).to(x) if weights is None else weights.to(x)
        count = often.sum()
        mean = often @ x / count
        products = mean.new_zeros(x.shape[1], x.shape[1])
        for part, share in zip(torch.split(x, PART), torch.split(often / count, PART), strict=True):
            add_products(products, part - mean, share)
        variance = products.diagonal().clone()
        scale = torch.rsqrt(variance + EPS)
        return cls(mean, variance, products * scale * scale.unsqueeze(1), count.item())

    def standardised(self, x: Tensor) -> Tensor:
        """Features (B, d) as BatchNorm gives them."""
        return (x - self.mean) * torch.rsqrt(self.variance + EPS)


def add_products(products: Tensor, off: Tensor, share: Tensor) -> None:
    """Add Σ share · off offᵀ to products (d, d). It is symmetric: of blocks that mirror each other, one is computed."""
    scaled, blocks = off * share.unsqueeze(1), range(0, len(products), BLOCK)
    for i in blocks:
        found = scaled[:, i : i + BLOCK].T @ off[:, i:]
        products[i : i + BLOCK, i:] += found
        products[i + BLOCK :, i : i + BLOCK] += found[:, BLOCK:].T
