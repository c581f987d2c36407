"""Kernel ridge regression of all classes at once: what samples like this one have. Fitted in seconds, without steps.

    p(x) = m + k(x)ᵀ (K + r I)⁻¹ (Y - m),    k(x)_i = exp(-‖x - x_i‖² / w)

m is the share of samples that have each class. Ridge r and width w are those with the smallest squared error when each sample
is left out, which is known in closed form. Unknown labels are filled in, first with the share of the class among
samples that have its parents and know, then with what the smoother says about the sample when it is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTHS, RIDGES = (0.25, 0.5, 1.0, 2.0), (0.3, 1.0, 3.0, 10.0, 30.0)  # widths in units of the median squared distance
FAR = 5.0  # standardised features are cut off there
COMMON, FEW = 128, 2500  # classes, and samples, that choose the kernel
MOST = 10_000
"""Most samples that are kept; more would need more memory than most machines have."""


class Smoother(nn.Module):
    """Probabilities of every class from those of similar samples.

    Args:
        samples: how many samples it keeps.
        in_features: width of the features, which must be standardised.
        nodes: number of classes.
    """

    samples: Tensor
    weights: Tensor
    mean: Tensor
    width: Tensor

    def __init__(self, samples: int, in_features: int, nodes: int) -> None:
        super().__init__()
        self.register_buffer("samples", torch.zeros(samples, in_features))
        self.register_buffer("weights", torch.zeros(samples, nodes))
        self.register_buffer("mean", torch.zeros(nodes))
        self.register_buffer("width", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) to (B, nodes) probabilities, each class by itself."""
        apart = torch.cdist(x.clamp(-FAR, FAR), self.samples, compute_mode="use_mm_for_euclid_dist")
        kernel = torch.exp(-apart.square() / self.width)
        return (self.mean + kernel @ self.weights).clamp(0, 1)

    @classmethod
    def fit(cls, x: Tensor, labels: Tensor, given: Tensor) -> Smoother:
        """Fit to samples.

        Args:
            x: (N, d) standardised features.
            labels: (N, nodes): 1 there, 0 not, -1 unknown.
            given: (N, nodes) bool: samples that have all parents of a class.
        """
        rows = spread(len(x), MOST)
        x, known, given = x[rows].clamp(-FAR, FAR), labels[rows] >= 0, given[rows]
        y = (labels[rows] == 1).float()
        y = torch.where(known, y, conditional_rates(y, known, given))
        made = cls(len(x), x.shape[1], labels.shape[1])
        squared = torch.cdist(x, x).square()
        median = squared.median().clamp(min=1e-12)
        few = spread(len(x), FEW)
        width, ridge = choose_kernel(squared[few][:, few], median, y[few], known[few])
        kernel = torch.exp(-squared / (width * median))
        inverse = torch.linalg.inv((kernel + ridge * torch.eye(len(x))).double()).float()
        for _ in range(1 if bool(known.all()) else 2):
            made.mean = y.mean(0)
            made.weights = inverse @ (y - made.mean)
            left_out = y - made.weights / inverse.diagonal().unsqueeze(1)
            y = torch.where(known, y, left_out.clamp(0, 1))
        made.samples, made.width = x, width * median
        return made


def spread(count: int, most: int) -> Tensor:
    """Positions of at most so many of `count` samples, evenly spread."""
    return torch.arange(count) if count <= most else torch.linspace(0, count - 1, most).long()


def choose_kernel(squared: Tensor, median: Tensor, y: Tensor, known: Tensor) -> tuple[float, float]:
    """The width and ridge with the smallest squared error of samples left out, over the most frequent classes."""
    common = y.mean(0).topk(min(COMMON, y.shape[1])).indices
    y, known, best, found = (y[:, common] - y[:, common].mean(0)).double(), known[:, common], torch.inf, (1.0, 1.0)
    for width in WIDTHS:
        values, vectors = torch.linalg.eigh(torch.exp(-squared / (width * median)).double())
        projected = vectors.T @ y
        for ridge in RIDGES:
            shrunk = 1 / (values + ridge)
            spread = (vectors.square() * shrunk).sum(1, keepdim=True)  # the diagonal of (K + r I)⁻¹
            error = float((((vectors * shrunk) @ projected / spread).square() * known).sum())
            if error < best:
                best, found = error, (width, ridge)
    return found


def conditional_rates(y: Tensor, known: Tensor, given: Tensor) -> Tensor:
    """(nodes,) share of samples with a class among those that have its parents and know it."""
    seen = known & given
    return (y * seen).sum(0) / seen.sum(0).clamp(min=1)
