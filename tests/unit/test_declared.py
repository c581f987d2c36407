"""What files of methods declare without torch, and how a model is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.heads import declared
from torchlht.heads.declared import Declared, check_method, check_option, options_named
from torchlht.heads.method import _ALIASES, create_method, list_methods, options_of
from torchlht.hierarchy.tree import Hierarchy


def test_files_of_methods_say_what_the_register_says() -> None:
    assert declared.declared() == Declared({name: tuple(options_of(name)) for name in list_methods()}, _ALIASES)
    assert options_named("lht-naive") == options_named("marginal")
    assert options_named("nope") == ()


@pytest.mark.parametrize("wrong", ["lth", "nope", ""])
def test_both_ways_refuse_with_the_same_sentence(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sentences() -> list[str]:
        said = []
        for check in (lambda: check_method(wrong), lambda: check_option("lht", wrong), lambda: check_option("hiclass", wrong)):
            with pytest.raises(declared.ConfigError) as fault:
                check()
            said.append(str(fault.value))
        return said

    registered = sentences()
    monkeypatch.setattr(declared, "METHODS", "not imported")
    assert sentences() == registered
    check_method("marginal")
    check_method("lht-naive")
    check_option("lht-naive", "width")


# ---- a model without random weights --------------------------------------------------------------------------------


def test_a_model_is_read_without_drawing_random_numbers_or_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Hierarchy.from_parents([[0, 0, 1]])
    made = Model(create_backbone("resnet18", pretrained=False), create_method("lht", 512, tree), options={})
    made.save_pretrained(tmp_path)
    monkeypatch.setattr("torchlht.answer.backbones._width", lambda *_: pytest.fail("it was run"))
    torch.manual_seed(5)
    read = Model.from_pretrained(tmp_path)
    assert torch.initial_seed() == 5
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert read.backbone.num_features == 512
    kept = made.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in read.state_dict().items())
    assert not read.backbone.state_dict()["network.conv1.weight"].eq(0).any()
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(read.look(x).log_probs, made.eval().look(x).log_probs, rtol=0, atol=0)
