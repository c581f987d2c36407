"""`lht next` from the command line and from Python, and its simulation."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchlht
from torchlht.cli import main
from torchlht.errors import ConfigError, LHTError
from torchlht.files import read_csv
from torchlht.lab.simulation import playing
from torchlht.lab.simulation.results import Cell

COST = "species=1,family=0.2,order=0.05"
PARENTS = (np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1]))


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Features: all labels known, some, or none."""
    rng = np.random.default_rng(0)
    species = rng.integers(0, 6, 240)
    labels = np.stack([species, PARENTS[0][species], PARENTS[1][PARENTS[0][species]]], axis=1)
    middle = rng.normal(size=(2, 12))[labels[:, 2]] * 2 + rng.normal(size=(3, 12))[labels[:, 1]] * 1.2
    x = (middle + rng.normal(size=(6, 12))[species] * 0.8 + rng.normal(size=(240, 12)) * 0.8).astype(np.float32)
    luck = rng.random(240)
    some = np.where((luck[:, None] < [0.2, 0.4, 0.6]), labels, -1)
    folder, found = tmp_path_factory.mktemp("birds"), {}
    for name, y in (("all", labels), ("some", some), ("none", np.full_like(labels, -1))):
        found[name] = folder / f"{name}.npz"
        names = {f"classes_{level}": [f"{level}{i}" for i in range(n)] for level, n in LEVELS.items()}
        np.savez(found[name], x=x, y=y, train=np.arange(240) < 160, levels=list(LEVELS), **names)
    (folder / "tree.csv").write_text(
        "order,family,species\n"
        + "".join(f"order{PARENTS[1][PARENTS[0][i]]},family{PARENTS[0][i]},species{i}\n" for i in range(6))
    )
    return found | {"tree": folder / "tree.csv"}


LEVELS = {"species": 6, "family": 3, "order": 2}


def words(birds: dict[str, Path], name: str, *more: str) -> list[str]:
    return ["next", str(birds[name]), "--hierarchy", str(birds["tree"]), *more]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a mistake."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_questions_are_printed_written_and_the_same_in_python(birds, tmp_path: Path, capsys) -> None:
    main(words(birds, "some", "--budget", "4", "--cost", COST, "--out", str(tmp_path / "out")))
    said = capsys.readouterr().out
    assert "questions for 4: " in said.replace("\n", " ")
    rows = read_csv(tmp_path / "out" / "questions.csv")
    assert list(rows[0]) == ["sample", "level", "cost", "why"]
    assert sum(float(row["cost"]) for row in rows) == pytest.approx(4)
    labels, levels = np.load(birds["some"])["y"], list(LEVELS)
    assert all(labels[int(row["sample"]), levels.index(row["level"])] == -1 for row in rows)
    assert all(int(row["sample"]) < 160 for row in rows)  # test samples stay what they are
    found = torchlht.next_questions(birds["some"], hierarchy=birds["tree"], budget=4, cost=COST)
    assert [(q["sample"], q["level"]) for q in found] == [(row["sample"], row["level"]) for row in rows]
    assert repr(found) == f"Questions({len(rows)} for 4)"
    main(words(birds, "some", "--budget", "4", "--cost", COST, "--format", "json", "--strategy", "margin"))
    told = json.loads(capsys.readouterr().out)
    assert [q["level"] for q in told["questions"]] == ["species"] * 4
    main(words(birds, "some", "--budget", "2", "--strategy", "random", "--format", "csv"))
    assert capsys.readouterr().out.startswith("sample,level,cost,why\n")


def test_what_came_back_without_an_answer_is_not_asked_again(birds, tmp_path: Path, capsys) -> None:
    options = {"hierarchy": birds["tree"], "budget": 4, "cost": COST}
    first = torchlht.next_questions(birds["some"], **options)
    (tmp_path / "questions.csv").write_text(first.csv())
    again = torchlht.next_questions(birds["some"], asked=(tmp_path / "questions.csv",), **options)
    deepest = {q["sample"]: list(LEVELS).index(q["level"]) for q in first}  # of several questions, the last is the finest
    assert all(list(LEVELS).index(q["level"]) > deepest.get(q["sample"], -1) for q in again)
    (tmp_path / "other.csv").write_text("sample,level\n3,genus\n")
    wrong = words(birds, "some", "--asked", str(tmp_path / "other.csv"))
    assert "other.csv, line 2: the level 'genus' is none of order, family, species" in refused(wrong, capsys)
    assert "no.csv: no such file" in refused(words(birds, "some", "--asked", str(tmp_path / "no.csv")), capsys)


def test_without_any_label_samples_are_chosen_by_how_they_lie(birds, capsys) -> None:
    main(words(birds, "none", "--budget", "3", "--strategy", "typical"))
    main(words(birds, "none", "--budget", "3", "--cost", COST))
    told = capsys.readouterr()
    assert told.out.count("questions for 3") == 2
    assert told.err.count("no sample has a label yet: questions are chosen by how samples lie") == 2
    assert "margin needs some labels to start from" in refused(words(birds, "none", "--strategy", "margin"), capsys)


def test_mistakes_are_one_sentence(birds, tmp_path: Path, capsys) -> None:
    wrong = {
        ("some", "--cost", "genus=1"): "--cost names the level 'genus': known: order, family, species",
        ("some", "--cost", "species=-1"): "--cost of species is -1: it must be above 0",
        ("some", "--cost", "species=1", "--budget", "0.5"): "--budget is 0.5, and the cheapest question costs 1: raise it",
        ("some", "--target", "genus"): "--target is 'genus': known: mACC, coverage, order, family, species",
        ("some", "--strategy", "nope"): "unknown strategy 'nope': known: ",
        ("some", "--simulate"): "--simulate needs a folder for its results: pass --out",
        ("some", "--resume"): "--resume is for --simulate",
        ("all",): "nothing is left to ask: every sample is labelled at every level that has a price",
        (
            "none",
            "--simulate",
            "--out",
            str(tmp_path / "x"),
        ): "a simulation needs samples that are labelled to the finest level",
        ("some", "--cannot-tell", "species=1.5"): "--cannot-tell of species is 1.5: it must be a probability",
        ("some", "--freeze-stages", "2"): "--freeze-stages is for training",
    }
    for (name, *more), says in wrong.items():
        assert says in refused(words(birds, name, *more), capsys)
    with pytest.raises(LHTError, match="bugdet is no option: did you mean budget"):
        torchlht.next_questions(birds["some"], bugdet=3)


def test_pictures_are_seen_through_a_frozen_backbone(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for folder in ("gulls/ivory", "gulls/ross", "auks/puffin", "gulls", "auks"):
        (tmp_path / "birds" / folder).mkdir(parents=True, exist_ok=True)
        for i in range(4):
            picture = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / "birds" / folder / f"{i}.png")
    names = ["--levels", "family,species", "--backbone", "small", "--image-size", "16"]
    main(["next", str(tmp_path / "birds"), *names, "--budget", "3", "--format", "csv"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["level"] for row in rows] == ["species"] * 3  # every family is known
    assert all(Path(row["sample"]).parent.name in ("gulls", "auks") for row in rows)


PLAY = f"--simulate --budget 12 --round 4 --seeds 2 --cost {COST} --strategies ours,random".split()


def test_a_simulation_draws_accuracy_against_money(birds, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    main(words(birds, "all", *PLAY, "--cannot-tell", "species=0.3", "--out", str(out)))
    assert {path.name for path in out.iterdir()} == {
        "cells", "curve.csv", "curve.png", "curve-dark.png", "simulation.yaml", "table.md"
    }  # fmt: skip
    rows = read_csv(out / "curve.csv")
    assert list(rows[0]) == ["strategy", "seed", "cost", "level", "accuracy"]
    assert [row["level"] for row in rows[:4]] == ["order", "family", "species", "mean"]
    first = [float(row["accuracy"]) for row in rows[:4]]
    assert first[3] == pytest.approx(np.mean(first[:3]), abs=1e-5)
    costs = [float(row["cost"]) for row in rows if (row["strategy"], row["seed"], row["level"]) == ("random", "1", "mean")]
    assert costs == [0, 4, 8, 12]
    start = {row["strategy"]: row["accuracy"] for row in rows if (row["seed"], row["cost"], row["level"]) == ("0", "0", "mean")}
    assert start["ours"] == start["random"]  # the same first labels
    said = capsys.readouterr().out
    assert "| ours |" in said
    assert "mean, all spent: " in said


def test_an_interrupted_simulation_goes_on_to_the_same_result(birds, tmp_path: Path, monkeypatch, capsys) -> None:
    main(words(birds, "all", *PLAY, "--out", str(tmp_path / "whole")))
    play, played = playing.play, []

    def dying(game: playing.Game, name: str, seed: int) -> Cell:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append((name, seed))
        return play(game, name, seed)

    monkeypatch.setattr(playing, "play", dying)
    with pytest.raises(SystemExit) as stop:
        main(words(birds, "all", *PLAY, "--out", str(tmp_path / "cut")))
    assert stop.value.code == 130
    assert "the same command goes on with --resume" in capsys.readouterr().err
    assert "already holds a simulation; add --resume" in refused(
        words(birds, "all", *PLAY, "--out", str(tmp_path / "cut")), capsys
    )
    monkeypatch.setattr(playing, "play", play)
    main(words(birds, "all", *PLAY, "--out", str(tmp_path / "cut"), "--resume"))
    assert (tmp_path / "cut" / "curve.csv").read_text() == (tmp_path / "whole" / "curve.csv").read_text()
    other = words(birds, "all", *PLAY, "--start", "2", "--out", str(tmp_path / "cut"), "--resume")
    assert "was started with other options" in refused(other, capsys)


def test_a_simulation_grows_and_strategies_have_targets_of_their_own(birds, tmp_path: Path) -> None:
    options = {"hierarchy": birds["tree"], "out": tmp_path / "out", "budget": 4, "round": 4, "seeds": 1, "cost": COST}
    torchlht.simulate_questions(birds["all"], strategies="random", **options)
    found = torchlht.simulate_questions(birds["all"], strategies="random,ours@species,ours@coverage", resume=True, **options)
    assert found.strategies == ["random", "ours@species", "ours@coverage"]
    assert found.price_of("random", "mean", 0.0) == 0
    assert found.price_of("random", "mean", 1.1) is None
    shutil.rmtree(tmp_path / "out")


def test_what_an_annotator_cannot_tell_is_paid_and_not_asked_again(birds, tmp_path: Path) -> None:
    options = {
        "hierarchy": birds["tree"],
        "seeds": 1,
        "budget": 400.0,
        "round": 100.0,
        "strategies": "random",
        "cost": "species=1",
    }
    for name, doubt in (("sure", ""), ("unsure", "species=0.5")):
        found = torchlht.simulate_questions(birds["all"], out=tmp_path / name, cannot_tell=doubt, **options)
        assert found.cells["random", 0].costs.tolist() == [0, 100, 154]  # each of 160 once, six were known at the start


@pytest.mark.parametrize("name", ["TypiClust", "CoreSet", "ProbCover", "UncertaintySampling"])
def test_peers_of_scikit_activeml_ask_at_the_finest_level(birds, name: str) -> None:
    pytest.importorskip("skactiveml")
    found = torchlht.next_questions(birds["some"], hierarchy=birds["tree"], budget=3, strategy=f"skactiveml:{name}")
    assert [q["level"] for q in found] == ["species"] * 3
    assert len({q["sample"] for q in found}) == 3


def test_a_peer_that_is_not_there_is_told(birds) -> None:
    pytest.importorskip("skactiveml")
    with pytest.raises(ConfigError, match="scikit-activeml has no strategy 'TypiClus': did you mean TypiClust"):
        torchlht.next_questions(birds["some"], hierarchy=birds["tree"], strategy="skactiveml:TypiClus")
