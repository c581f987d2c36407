"""What is unlike anything it was trained on: the distance against loops in float64, p-values, and the answers it changes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from torchlht import list_methods
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.answer.named import Named, Wanted
from torchlht.answer.novelty import (
    ALARMS,
    SHRINKAGE,
    Novelty,
    discriminants,
    doubts,
    fit_novelty,
    leaves_of,
    left_out,
)
from torchlht.commands.predict import answer_texts, print_csv, print_json, print_table
from torchlht.data.batches import FeatureSet
from torchlht.errors import RunError
from torchlht.heads.prediction import Prediction
from torchlht.learn.training import learn_novelty
from trees import normal, paths, random_hierarchy, random_labels, random_method

TREE = random_hierarchy(np.random.default_rng(0), (6, 3, 2))
WIDTH = 8
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "predict.schema.json").read_text(encoding="utf-8"))


def clustered(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features around a centre per finest class, and labels."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(TREE.sizes[0], WIDTH)) * 2
    labels = paths(TREE, rng, n)
    return torch.from_numpy(centres[labels[:, 0]] + rng.normal(size=(n, WIDTH)) * 0.4).float(), labels


def said_of(n: int, seed: int) -> Prediction:
    rng = np.random.default_rng(seed)
    return Prediction(tuple(torch.log_softmax(normal(rng, n, size, scale=2.0).float(), dim=1) for size in TREE.sizes))


def model_of(name: str = "multihead", *, validated: bool = True) -> Model:
    method = random_method(name, TREE, np.random.default_rng(2), WIDTH).float()
    model = Model(create_backbone("none"), method, options={"width": 12}).eval()
    known = FeatureSet(*clustered(100, 2)) if validated else None
    model.novelty = learn_novelty(model, FeatureSet(*clustered(150, 1)), known)
    return model


# ---- the distance ----------------------------------------------------------------------------------------------------


def test_the_distance_is_the_relative_mahalanobis_distance() -> None:
    x, labels = (one.double() if one.is_floating_point() else one for one in clustered(120, 0))
    classes = labels[:, 0]
    means = np.stack([x[classes == c].mean(dim=0).numpy() for c in range(6)])
    rest = x.numpy() - means[classes]
    within = rest.T @ rest / len(x)
    within = (1 - SHRINKAGE) * within + SHRINKAGE * np.trace(within) / WIDTH * np.eye(WIDTH)
    centre = x.numpy().mean(axis=0)
    apart = means[classes] - centre
    total = within + apart.T @ apart / len(x)
    for point, found in zip(x[:10].numpy(), discriminants(x, classes).inside(x[:10]).tolist(), strict=True):
        near = min(float((point - m) @ np.linalg.solve(within, point - m)) for m in means)
        expected = near - float((point - centre) @ np.linalg.solve(total, point - centre))
        assert found == pytest.approx(expected, abs=1e-8)


def test_a_sample_that_is_left_out_does_not_make_itself_near() -> None:
    x, labels = clustered(120, 0)
    x, classes = x.double(), labels[:, 0]
    turns = np.random.default_rng(0).permutation(len(x)) % 10
    found = left_out(x, classes)
    for turn in (0, 7):
        out = torch.from_numpy(turns == turn)
        torch.testing.assert_close(found[out], discriminants(x[~out], classes[~out]).inside(x[out]))
    assert found.mean() > discriminants(x, classes).inside(x).mean()


def test_unknown_labels_are_filled_in_as_far_as_the_known_ones_allow() -> None:
    rng = np.random.default_rng(3)
    said, truth = said_of(40, 3), paths(TREE, rng, 40)
    labels = truth.clone()
    labels[:20, 0], labels[:10, 1], labels[:3] = -1, -1, -1
    for n, leaf in enumerate(leaves_of(said, labels, TREE).tolist()):
        allowed = [c for c in range(6) if all(labels[n, k] in (-1, TREE.ancestors(k)[c]) for k in range(3))]
        score = {c: sum(float(said.log_probs[k][n, TREE.ancestors(k)[c]]) for k in range(3)) for c in allowed}
        assert leaf == max(allowed, key=score.__getitem__)


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_a_share_counts_known_samples_that_are_at_least_as_far() -> None:
    x, labels = clustered(150, 1)
    known, said = clustered(80, 2)[0], said_of(80, 4)
    rest = Prediction(tuple(p[30:] for p in said.log_probs))
    novelty = fit_novelty(x, labels[:, 0], 3, [(known[:30], said.first(30)), (known[30:], rest)])
    assert novelty is not None
    assert novelty.space is not None
    distance = novelty.space.distance(known)
    torch.testing.assert_close(distance, novelty.seen(said, known).distance)
    entropy = [-(p.exp() * p).sum(dim=1) for p in said.log_probs]
    for ours, theirs in zip(doubts(said), entropy, strict=True):
        torch.testing.assert_close(ours, theirs)
    scores = [(distance / distance.std() + h / h.std()).double().numpy() for h in entropy]
    new = novelty.seen(said_of(20, 5), clustered(20, 6)[0])
    at = [(new.distance / distance.std() + g / h.std()).double().numpy() for g, h in zip(doubts(new), entropy, strict=True)]
    found = novelty.as_far(new)
    for n in range(20):
        least = 0.0
        for k in range(3):
            least = max(least, (1 + (scores[k] >= at[k][n]).sum()) / 81)
            assert float(found[n, k]) == pytest.approx(least, abs=0.02)


@pytest.mark.parametrize("validated", [False, True], ids=["left out", "validation"])
def test_false_alarms_are_as_rare_as_stated_and_strange_samples_are_told(validated: bool) -> None:
    model = model_of("logistic", validated=validated)
    assert model.novelty is not None
    fresh, strange = clustered(2000, 7)[0], normal(np.random.default_rng(8), 200, WIDTH, scale=3.0).float()
    alarms = (model.novelty.as_far(model.look(fresh)) < ALARMS).double().mean(dim=0)
    assert (alarms < 0.11).all()
    assert alarms[0] > 0.01
    assert (model.novelty.as_far(model.look(strange))[:, 0] < ALARMS).double().mean() > 0.6
    far = model.novelty.as_far(model.look(strange))
    assert (far[:, 1:] >= far[:, :-1]).all()


def test_too_few_samples_or_no_spread_tell_nothing() -> None:
    x, labels = clustered(19, 0)
    assert fit_novelty(x, labels[:, 0], 3) is None
    assert fit_novelty(torch.ones(50, 4), torch.zeros(50, dtype=torch.int64), 3) is None


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_methods())
def test_every_method_tells(name: str) -> None:
    model = model_of(name)
    for named in model.predict(clustered(6, 10)[0]):
        shares = [level.as_far for level in named.levels]  # coarse → fine
        assert all(share is not None and 0 < share <= 1 for share in shares)
        assert shares == sorted(shares, reverse=True)


def strange_and_known() -> list[Named]:
    x = torch.cat([normal(np.random.default_rng(8), 40, WIDTH, scale=3.0).float(), clustered(40, 7)[0]])
    return model_of().predict(x)


def test_a_level_it_is_unlike_is_not_answered_where_answers_are_rolled_up() -> None:
    found, asked = strange_and_known(), Wanted(0.0, "confidence 0")
    seen = set()
    for named in found:
        answer, bad = named.answer_at(asked), [level.level for level in named.levels if level.unlike]
        seen.add(len(bad))
        assert named.answer().level == TREE.levels[0]  # without a threshold the finest, and what it is unlike
        assert answer.unlike == named.answer().unlike == named.unlike
        assert (named.unlike is None) == (not bad)
        if len(bad) == 3:
            assert answer.label is None
            assert named.unlike is not None
            assert named.unlike.startswith("unlike anything I was trained on (further from every")
        elif bad:
            assert answer.level == TREE.levels[len(bad)]
            assert f"unlike any {bad[0]} I was trained on" in str(answer.unlike)
        assert (str(answer.unlike) in " ".join(answer_texts(answer))) == bool(bad)
    assert {0, 3} <= seen


def test_it_is_printed_in_every_format(capsys) -> None:
    found = strange_and_known()
    print_json(found, Wanted())
    rows = json.loads(capsys.readouterr().out)
    jsonschema.validate(rows, SCHEMA)
    assert [row["answer"]["unlike"] for row in rows] == [named.unlike for named in found]
    assert rows[0]["levels"][0]["as_far"] == found[0].levels[0].as_far
    print_csv(found, Wanted())
    cells = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["unlike"] or None for row in cells] == [named.unlike for named in found]
    assert float(cells[0][f"{TREE.levels[0]}_as_far"]) == pytest.approx(found[0].levels[-1].as_far, abs=1e-6)
    print_table(found, Wanted())
    assert f"(unlike any {TREE.levels[0]})" in capsys.readouterr().out


# ---- keeping ---------------------------------------------------------------------------------------------------------


def test_a_run_keeps_it_and_one_without_answers_as_before(tmp_path: Path) -> None:
    model, x = model_of(), clustered(5, 11)[0]
    model.save_pretrained(tmp_path / "run")
    again = Model.from_pretrained(tmp_path / "run")
    assert again.predict(x) == model.predict(x)
    (tmp_path / "run" / "novelty.safetensors").unlink()
    without = Model.from_pretrained(tmp_path / "run").predict(x)
    assert all(level.as_far is None and not level.unlike for named in without for level in named.levels)
    assert [named.names for named in without] == [named.names for named in model.predict(x)]
    (tmp_path / "run" / "novelty.safetensors").write_bytes(b"broken")
    with pytest.raises(RunError, match="write it again with lht calibrate"):
        Model.from_pretrained(tmp_path / "run")


def test_what_an_exported_file_keeps_gives_the_same_shares() -> None:
    model, x = model_of(), clustered(30, 12)[0]
    assert model.novelty is not None
    kept = Novelty.from_dict(json.loads(json.dumps(model.novelty.to_dict())))
    torch.testing.assert_close(kept.as_far(model.look(x)), model.novelty.as_far(model.look(x)))


def test_masked_training_samples_take_part() -> None:
    model, (x, _) = model_of(), clustered(150, 1)
    labels = random_labels(TREE, np.random.default_rng(0), 150, missing=0.0)
    labels[:, 0] = -1
    assert learn_novelty(model, FeatureSet(x, labels), None) is not None


@pytest.mark.parametrize("how", ["truncated", "another width", "other levels", "not a number", "a tensor is missing"])
def test_a_damaged_file_is_told_and_can_be_written_again(how: str, tmp_path: Path) -> None:
    model = model_of()
    model.save_pretrained(tmp_path)
    file = tmp_path / "novelty.safetensors"
    tensors = load_file(file)
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:200])
    else:
        damage = {
            "another width": {"projection": tensors["projection"][1:].contiguous()},
            "other levels": {"weights": tensors["weights"][1:].contiguous()},
            "not a number": {"means": tensors["means"] * torch.nan},
        }
        kept = {name: value for name, value in tensors.items() if how != "a tensor is missing" or name != "spread"}
        save_file(kept | damage.get(how, {}), file)
    with pytest.raises(RunError, match=r"novelty.safetensors: .*write it again with lht calibrate"):
        Model.from_pretrained(tmp_path)
    assert Model.from_pretrained(tmp_path, calibrated=False).novelty is None
