"""Networks in stages: entered after the first ones, they do the same to the bit. And EfficientNet-Lite0, quick and plain."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from torchlht.answer.backbones import create_backbone
from torchlht.answer.lite0 import Depthwise, PooledEfficientNet
from torchlht.answer.stages import stages_of
from torchlht.errors import BackboneError

COUNTS = {"small": 4, "efficientnet_lite0": 8, "resnet18": 5, "mobilenetv2_050": 8}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_maps_and_then_the_rest_are_the_whole_network_to_the_bit(name: str, count: int) -> None:
    torch.manual_seed(0)
    backbone, x = create_backbone(name, pretrained=False), torch.randn(3, 3, 64, 64)
    assert len(stages_of(backbone.network)) == count
    for training in (False, True):
        backbone.train(training)
        for stages in range(1, count):
            torch.manual_seed(1)  # for blocks that samples skip at random
            whole = backbone(x)
            torch.manual_seed(1)
            maps = backbone.maps(x, stages)
            with backbone.entering(stages):
                assert torch.equal(backbone(maps), whole)
    assert backbone.entered == 0


@pytest.mark.parametrize("name", COUNTS)
def test_frozen_stages_have_no_gradient_and_no_statistics_change(name: str) -> None:
    backbone = create_backbone(name, pretrained=False)
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    backbone.freeze(2, 64)
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    first, *rest = stages_of(backbone.network)
    assert not any(p.requires_grad for module in first.modules for p in module.parameters())
    assert all(p.requires_grad for stage in rest[1:] for module in stage.modules for p in module.parameters())
    stages = [p for stage in stages_of(backbone.network) for module in stage.modules for p in module.parameters()]
    assert {id(p) for p in stages} == {id(p) for p in backbone.parameters()}


@pytest.mark.parametrize(
    ("name", "stages", "message"),
    [
        ("small", 4, "freeze_stages is 4, but small has 4, of which the last must train"),
        ("test_vit", 2, "freeze_stages: test_vit is no chain of stages; use freeze, or another backbone"),
    ],
)
def test_what_cannot_be_entered_is_refused(name: str, stages: int, message: str) -> None:
    backbone = create_backbone(name, pretrained=False)
    assert backbone.preprocess
    with pytest.raises(BackboneError, match=message):
        backbone.freeze(stages, backbone.preprocess.size)


# ---- EfficientNet-Lite0 ----------------------------------------------------------------------------------------------


def plain_network() -> Any:
    """The network as its package makes it."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EfficientNet.from_name("efficientnet-lite0")


def test_the_quick_network_is_the_plain_one_to_the_bit() -> None:
    plain, quick, x = plain_network(), PooledEfficientNet(plain_network()), torch.randn(4, 3, 96, 96)
    assert [f"network.{name}" for name in plain.state_dict() if "_fc" not in name] == list(quick.state_dict())
    for training in (False, True):
        found = []
        for network in (plain, quick):
            torch.manual_seed(1)
            network.train(training)
            features = network(x) if network is quick else network.extract_features(x).mean(dim=(2, 3))
            features.square().mean().backward()
            found.append([features, *(p.grad for p in network.parameters() if p.grad is not None)])
            network.zero_grad()
        assert len(found[0]) == len(found[1]) == 1 + 147
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_making_it_quick_draws_no_random_numbers() -> None:
    plain = plain_network()
    before = torch.get_rng_state()
    PooledEfficientNet(plain)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("stride", "padding"), [(1, (1, 1, 1, 1)), (2, (0, 1, 0, 1)), (1, None)])
def test_gradients_of_a_depthwise_convolution_in_low_precision_are_close_to_exact_ones(stride: int, padding: Any) -> None:
    own: Any = nn.Conv2d(6, 6, 3, stride, groups=6, bias=False)
    own.static_padding = nn.ZeroPad2d(padding) if padding else nn.Identity()
    layer, x = Depthwise(own), torch.randn(5, 6, 8, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    exact_x, exact_weight = x.detach().double().requires_grad_(), own.weight.detach().double().requires_grad_()
    exact = naive_depthwise(exact_x, exact_weight, stride, padding or (0, 0, 0, 0))
    exact.square().sum().backward()
    for found, expected in ((y, exact), (x.grad, exact_x.grad), (layer.weight.grad, exact_weight.grad)):
        torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02 * expected.abs().max().item())


def naive_depthwise(x: Tensor, weight: Tensor, stride: int, padding: tuple[int, int, int, int]) -> Tensor:
    x = nn.functional.pad(x, padding)
    starts = range(0, x.shape[2] - 2, stride)
    rows = [torch.stack([(x[:, :, a : a + 3, b : b + 3] * weight[:, 0]).sum(dim=(2, 3)) for b in starts], 2) for a in starts]
    return torch.stack(rows, dim=2)
