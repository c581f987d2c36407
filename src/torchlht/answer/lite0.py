"""EfficientNet-Lite0 as a backbone: the network of its package, quicker on a CPU to the same bits, and in stages."""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchlht.answer.stages import Stage, one_after_the_other

STAGES = (1, 2, 2, 3, 3, 4, 1)  # blocks in each


class PooledEfficientNet(nn.Module):
    """EfficientNet-Lite0 without its classifier: the last feature map, averaged over space.

    Args:
        network: the network of the package; it is changed in place, and the names of its weights are not.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        network._fc = nn.Identity()
        self.network: Any = network
        self.pooled = True
        quicken(network)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures (B, 3, size, size) to features (B, 1280), or to the map they are the mean of."""
        return self._pool(self.network.extract_features(x))

    def _pool(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) if self.pooled else maps

    def unpool(self) -> None:
        """See `Backbone.unpool`."""
        self.pooled = False

    def in_stages(self) -> list[Stage]:
        """Seven stages, and the layer before the features."""
        own, starts = self.network, list(accumulate(STAGES, initial=0))
        most = own._global_params.drop_connect_rate or 0.0  # share of samples that skip the last block in training
        blocks = [partial(block, drop_connect_rate=most * i / len(own._blocks)) for i, block in enumerate(own._blocks)]
        stages = [Stage(own._blocks[a:b], one_after_the_other(blocks[a:b])) for a, b in pairwise(starts)]
        stem, head = (own._conv_stem, own._bn0, own._swish), (own._conv_head, own._bn1, own._swish)
        first = Stage([*stem, *stages[0].modules], one_after_the_other([*stem, stages[0].run]))
        return [first, *stages[1:], Stage(head, one_after_the_other([*head, self._pool]))]


# ---- the same, quicker -----------------------------------------------------------------------------------------------


def quicken(network: nn.Module) -> None:
    """Pad inside convolutions and rectify in place: on a CPU half as fast again, to the same bits at 96 px and more."""
    for module in list(network.modules()):
        if isinstance(module, nn.ReLU6):
            module.inplace = True
        for name, inner in list(module.named_children()):
            if isinstance(inner, nn.Conv2d) and inner.groups > 1:
                setattr(module, name, Depthwise(inner))


class Depthwise(nn.Conv2d):
    """A convolution of each channel by itself. Its gradients are always float32: a CPU takes far longer in bfloat16.

    Args:
        own: the convolution of the package, whose weight it takes over. What it pads is padded inside the convolution if it
            is the same on all sides.
    """

    def __init__(self, own: Any) -> None:
        sides = set(getattr(own.static_padding, "padding", (0,)))
        alike = len(sides) == 1
        shape = own.in_channels, own.out_channels, own.kernel_size, own.stride, (max(sides) if alike else 0)
        super().__init__(*shape, groups=own.groups, bias=False, device="meta")  # draws no random numbers
        self.weight, self.ahead = own.weight, nn.Identity() if alike else own.static_padding

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) to (B, C, h', w')."""
        x = self.ahead(x)
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.is_grad_enabled():
            found: Tensor = _WideGradients.apply(x, self.weight, self.stride, self.padding)
            return found
        return super().forward(x)


class _WideGradients(torch.autograd.Function):
    """A depthwise convolution in the precision of autocast, with gradients in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        x = x.to(torch.get_autocast_dtype("cpu"))
        ctx.save_for_backward(x, weight)
        ctx.how = stride, padding
        return nn.functional.conv2d(x, weight.to(x.dtype), None, stride, padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (stride, padding), (gradient,) = ctx.saved_tensors, ctx.how, gradients
        wanted = [*ctx.needs_input_grad[:2], False]
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            gradient.float(), x.float(), weight, None, stride, padding, (1, 1), False, (0, 0), len(weight), wanted
        )
        return None if of_x is None else of_x.to(x.dtype), of_weight, None, None
