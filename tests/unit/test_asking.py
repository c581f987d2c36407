"""The loop over samples: what a network is asked, and how it is left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from torchlht.answer.asking import ask, ask_all, evaluating, over
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.data.batches import FeatureSet, ImageSet
from torchlht.errors import DataError
from torchlht.heads.method import create_method
from torchlht.hierarchy.tree import Hierarchy

TREE = Hierarchy.from_parents([[0, 0, 1, 1, 1, 2], [0, 0, 1]])


@pytest.fixture
def data() -> FeatureSet:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
    return FeatureSet(x, torch.arange(7).unsqueeze(1).expand(-1, 3))


def method(name: str = "lht") -> nn.Module:
    torch.manual_seed(0)
    return create_method(name, 5, TREE, width=8)


def test_every_sample_is_asked_once_in_order_as_if_alone(data: FeatureSet):
    network = method()
    prediction, labels = ask_all(network, data)
    assert labels[:, 0].tolist() == list(range(7))
    network.eval()
    for i in range(7):
        alone = network(data.x[i : i + 1])
        for k in range(3):
            torch.testing.assert_close(prediction.log_probs[k][i : i + 1], alone.log_probs[k], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_it_is_asked_in_evaluation_mode_without_gradients_and_left_as_it_was(data: FeatureSet, training: bool):
    network = method().train(training)
    seen: list[tuple[bool, bool]] = []

    def question(x: Tensor) -> Tensor:
        seen.append((network.training, torch.is_grad_enabled()))
        return x

    for rows, _, labels in over(network, data, question, batch_size=3):
        assert torch.is_grad_enabled(), "whoever asks keeps gradients"
        assert labels[:, 0].tolist() == list(rows)
    assert seen == [(False, False)] * 3
    assert network.training is training


def test_a_loop_that_is_left_early_leaves_the_network_as_it_was(data: FeatureSet):
    network = method().train()
    answers = ask(network, data, batch_size=2)
    next(answers)
    answers.close()
    assert network.training
    with pytest.raises(RuntimeError), evaluating(network):
        raise RuntimeError
    assert network.training


def test_some_samples_or_batches_in_any_order(data: FeatureSet):
    rows = [list(rows) for rows, _, _ in over(None, data, len, samples=[5, 0, 3], batch_size=2)]
    assert rows == [[5, 0], [3]]
    assert [n for _, n, _ in over(None, data, len, batches=[[1], [2, 3, 4]])] == [1, 3]
    with pytest.raises(DataError, match="no samples"):
        next(ask(method(), data, samples=[]))
    _, labels = next(ask(method(), data.x))
    assert (labels == -1).all(), "labels of bare inputs are unknown"


def test_features_of_a_network_for_pictures_go_to_its_method_alone():
    model = Model(create_backbone("small"), create_method("flat", 192, TREE), options={})
    features = FeatureSet(torch.randn(2, 192), torch.zeros(2, 3))
    torch.testing.assert_close(next(ask(model, features))[0].log_probs[0], model.method.eval()(features.x).log_probs[0])
    on_features = Model(create_backbone("none"), create_method("flat", 5, TREE), options={})
    assert on_features.part_for(features=True) is on_features


def test_pictures_that_cannot_be_read_are_noted_and_left_out_or_refused(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (20, 20), "red").save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    files = [tmp_path / "a.png", tmp_path / "broken.png", tmp_path / "missing.png", tmp_path / "b.png"]
    model = Model(create_backbone("small"), create_method("flat", 192, TREE), options={})
    with pytest.raises(DataError, match=r"broken\.png: not a readable picture"):
        model.predict(files)
    noted: list[tuple[str, str]] = []
    found = model.predict(files, unreadable=noted, batch_size=2)
    assert [named.source for named in found] == [str(files[0]), str(files[3])]
    assert noted == [(str(files[1]), "not a readable picture"), (str(files[2]), "no such file")]
    assert model.predict([files[1]], unreadable=[]) == model.predict([]) == []
    spec = model.preprocess
    assert spec is not None
    x, labels = ImageSet(files[:1], torch.tensor([[4]]), spec).__getitems__([0, 0])
    assert len(x) == 2, "a sample may come twice"
    assert labels.tolist() == [[4], [4]]
