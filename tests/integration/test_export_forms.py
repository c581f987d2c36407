"""Every form of every transition exports: to ONNX and to torch.export, for batches of other sizes than the traced one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from torchlht import list_methods
from torchlht.answer.backbones import create_backbone
from torchlht.answer.exported.read import quietly
from torchlht.answer.exported.write import FORMATS, TOLERANCE, describe, difference, samples, traced
from torchlht.answer.model import Model
from torchlht.answer.named import Wanted
from torchlht.heads.method import find_method, method_options
from torchlht.heads.transition import networks
from torchlht.heads.transition.truncated import TruncatedTransition
from torchlht.vocabulary import Form, TransitionName
from trees import random_hierarchy, random_method

TREE = random_hierarchy(np.random.default_rng(0), (40, 6))
TRUNCATED = ({"columns": 1}, {"columns": 16}, {"tail": 0.6}, {"tail": 0.01})  # of 40; from a quarter on, all are computed


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Methods that have forms, with each transition that may be chosen, in each form that the transition has."""
    auto = {"form": "auto", "columns": 2}
    forms = [auto, *({"form": form} for form in get_args(Form) if form not in ("auto", "truncated"))]
    forms += [{"form": "truncated", **columns} for columns in TRUNCATED]
    for name in list_methods():
        known, given = method_options(name), find_method(name).options
        for transition in get_args(TransitionName) if "form" in known else ():
            refused = "transition" in given or (transition == "fixed" and known["confusion_weight"])
            if transition == known["transition"] or not refused:
                several = forms if transition == "low_rank" else [auto]  # the others have one form
                yield from ((name, {"transition": transition, **form}) for form in several)


@pytest.mark.parametrize(("name", "options"), list(cases()), ids=str)
def test_every_form_says_the_same_once_it_is_exported(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    torch.set_num_threads(1)
    for limit in ("PLAIN", "CONFUSED"):
        monkeypatch.setattr(networks, limit, 100)  # so that `auto` takes `truncated`
    method = random_method(name, TREE, np.random.default_rng(1), **options).float()
    model = Model(create_backbone("none"), method, options=options).eval()
    said = model.look(samples(model, 8))
    if options["transition"] == "low_rank" and options["form"] in ("auto", "truncated"):
        (transition,) = said.transitions
        assert isinstance(transition, TruncatedTransition)
        assert transition.tail is not None
        assert (transition.tail.max() > 0) == (options.get("tail") != 0.01 and options.get("columns") != 16)
    text = json.dumps(describe(model, said, Wanted()))
    with quietly():
        program = traced(model)
    for to, (write, read) in FORMATS.items():
        with quietly():
            write(program, model, text, tmp_path / to)
        found = read(tmp_path / to)
        assert difference(model, found) <= TOLERANCE
        x = samples(model, 32)
        for ours, theirs in zip(model.look(x).log_probs, found.look(x).log_probs, strict=True):
            torch.testing.assert_close(theirs.exp(), ours.exp(), atol=TOLERANCE, rtol=0)
