"""What happens in a step and between epochs: the objective, averaged weights, and targets for unknown labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from torchlht.answer.asking import evaluating, over
from torchlht.answer.model import Model
from torchlht.data.batches import SampleSet
from torchlht.data.samples import Ints
from torchlht.heads.method import InputNorm, Method
from torchlht.heads.prediction import Prediction, soft_cross_entropy, towards_uniform
from torchlht.processes import Tally, together, world

if TYPE_CHECKING:
    from torchlht.learn.semi.schedule import Semi

Target = tuple[Tensor, Tensor, Tensor]  # index, value and weight of the `Targets` of a batch


class Step(nn.Module):
    """One forward pass with its loss in a single call, so that DDP sees everything.

    Args:
        network: what is trained: the model, or its method alone on features.
        model: the model.
        mixup: a of the Beta(a, a) distribution of the mixing shares; 0 for none.
        smoothing: share of the uniform distribution in every label.
        shares: per level, the weight of targets for unknown labels.
    """

    def __init__(
        self, network: nn.Module, model: Model, *, mixup: float = 0.0, smoothing: float = 0.0, shares: Sequence[float] = ()
    ) -> None:
        super().__init__()
        self.network = network
        self._method, self._shares = (model.method,), shares  # in a tuple, so that it is not registered twice
        self.mixup, self.smoothing = mixup, smoothing
        self.tally: Tally | None = None
        for k in range(len(model.hierarchy)):
            self.register_buffer(f"ancestors_{k}", torch.from_numpy(model.hierarchy.ancestors(k)), persistent=False)

    def forward(self, x: Tensor, labels: Tensor, target: Target | None = None) -> tuple[Tensor, Tensor]:
        """The loss, and (K, 2) per level: known labels predicted correctly, and all known labels.

        Args:
            x: a batch.
            labels: (B, K).
            target: index, value and weight of the `Targets` of the batch.
        """
        with together(self.tally):
            if self.tally:
                self.tally.begin()
            prediction, loss = self._looked(x, labels, target)
        known = labels >= 0
        chosen = prediction.chosen()
        hits = torch.stack([((chosen == labels) & known).sum(dim=0), known.sum(dim=0)], dim=1)
        return loss, hits

    def _looked(self, x: Tensor, labels: Tensor, target: Target | None) -> tuple[Prediction, Tensor]:
        features = self.network.backbone(x) if isinstance(self.network, Model) else x
        (method,) = self._method
        if not self.mixup or (len(x) <= 1 and world() == 1):  # several processes must all do the same
            prediction = method(features)
            return prediction, self.objective(prediction, labels, target)
        share = torch.distributions.Beta(self.mixup, self.mixup).sample().item()
        share, other = max(share, 1 - share), torch.randperm(len(x)).to(x.device)
        prediction = method(share * features + (1 - share) * features[other])
        swapped = None if target is None else (target[0][other], target[1][other], target[2][other])
        loss = share * self.objective(prediction, labels, target)
        return prediction, loss + (1 - share) * self.objective(prediction, labels[other], swapped)

    def count_ahead(self, parts: Sequence[tuple[Tensor, Target | None]]) -> None:
        """Before a step of several parts: add up the divisors of their losses, which depend on labels and targets alone."""
        (method,) = self._method
        tally, some = Tally(), next(method.parameters())
        place = (1, 1) if method.on_maps else ()
        nothing = torch.zeros(1, method.in_features, *place, dtype=some.dtype, device=some.device)
        method.eval()  # no statistics are updated by these zeros, and no random numbers drawn
        with torch.no_grad(), together(tally):
            for labels, target in parts:
                tally.begin()
                self.objective(method(nothing.expand(len(labels), *nothing.shape[1:])), labels, target)
            tally.close()
        method.train()
        self.tally = tally

    def objective(self, prediction: Prediction, labels: Tensor, target: Target | None) -> Tensor:
        """The method's loss on known labels, cross-entropy with targets on unknown ones."""
        (method,) = self._method
        loss = method.loss(prediction, labels)
        if self.smoothing:
            uniform = towards_uniform(prediction.log_probs, method.visible(labels), method.reduction)
            loss = (1 - self.smoothing) * loss + self.smoothing * uniform
        if target is not None:
            above = [self.get_buffer(f"ancestors_{k}") for k in range(labels.shape[1])]
            loss = loss + soft_cross_entropy(
                prediction.log_probs, labels, *target, above, method.reduction, self._shares or None
            )
        return loss


class Averaged:
    """An exponential moving average of a network's weights.

    Args:
        network: the network to average.
        decay: share of the average kept at each step; less in the first steps.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = deepcopy(network).eval().requires_grad_(False)
        self.decay, self.steps = decay, 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Update the average after a step: weights and statistics alike; counts of steps are copied."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        pairs = list(zip(self.network.state_dict().values(), network.state_dict().values(), strict=True))
        mixed = [(mean, value) for mean, value in pairs if mean.is_floating_point()]
        torch._foreach_lerp_([mean for mean, _ in mixed], [value for _, value in mixed], 1 - decay)
        for mean, value in pairs:
            if not mean.is_floating_point():
                mean.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {f"averaged.{name}": value for name, value in self.network.state_dict().items()}

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        """Restore what `state` returned, after this many steps."""
        self.steps = steps
        self.network.load_state_dict({n.removeprefix("averaged."): v for n, v in state.items() if n.startswith("averaged.")})


# ---- targets -------------------------------------------------------------------------------------------------------


def begin_epoch(semi: Semi, network: nn.Module, data: SampleSet, *, seed: int, epoch: int, workers: int) -> dict[str, float]:
    """Make the targets of an epoch with the current network; returns what `Semi.begin` returns.

    Args:
        semi: the targets.
        network: a model, or its method alone on features; with averaged weights if there are any.
        data: the training samples.
        seed: seed of the run.
        epoch: counted from 0.
        workers: how many processes decode pictures.
    """
    torch.manual_seed(np.random.SeedSequence([seed, epoch, 1]).generate_state(1)[0].item())
    model = network if isinstance(network, Model) else None
    method = model.method if model else network
    assert isinstance(method, Method)

    def features(x: Tensor) -> Tensor:
        found: Tensor = model.backbone(x) if model else x
        return method.pool(found) if epoch == 0 else method.embed(found)  # before the first step a neck is untrained

    def predict(x: Tensor) -> Tensor:
        log_p: Tensor = network(x).log_probs[0]
        return log_p

    def predict_noisily(x: Tensor) -> Tensor:
        with noisy(method):
            return predict(x)

    def asked(view: SampleSet, question: Callable[[Tensor], Tensor]) -> Iterator[tuple[Ints, Tensor]]:
        for rows, found, _ in over(network, view, question, workers=workers):
            yield np.array(rows), found.float().cpu()

    def views() -> Iterator[tuple[Ints, Tensor, Tensor | None]]:
        first = asked(data.view(), predict)
        if semi.kind.hard:  # one look at each sample as it is
            yield from ((rows, log_p, None) for rows, log_p in first)
            return
        for (rows, log_p), (_, other) in zip(first, asked(data.view(seed, epoch), predict_noisily), strict=True):
            yield rows, log_p, other

    def embed() -> Tensor:
        found = [torch.cat([u for _, u in asked(view, features)]) for view in data.each_view()]
        return torch.stack(found).mean(dim=0)

    with evaluating(network):
        return semi.begin(epoch, embed, views)


@contextmanager
def noisy(method: Method) -> Iterator[None]:
    """Context: dropout is on as in training, for a second view of the same samples."""
    norms = [module for module in method.modules() if isinstance(module, InputNorm)]
    for norm in norms:
        norm.noisy = True
    try:
        yield
    finally:
        for norm in norms:
            norm.noisy = False
