"""`lht train --config`: the options of a run, or of a file somebody wrote, start another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from PIL import Image
from safetensors.torch import load_file

import torchlht
from torchlht.cli import main


def weights(run: Path) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in load_file(run / "model.safetensors").items()}


def test_the_config_of_a_run_starts_the_same_run(embeddings: Path, tmp_path: Path) -> None:
    first = ["train", str(embeddings), "--epochs", "2", "--gamma", "2", "--mask", "0.3", "--seed", "4", "--quiet"]
    main([*first, "--out", str(tmp_path / "a")])
    main(["train", "--config", str(tmp_path / "a" / "config.yaml"), "--out", str(tmp_path / "b")])
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    again = torchlht.train(config=tmp_path / "a" / "config.yaml", out=tmp_path / "c")
    assert weights(tmp_path / "a") == weights(again.path)


@pytest.mark.parametrize("several_parents", [False, True])
def test_from_another_folder_a_run_finds_its_data_and_its_tree(
    several_parents: bool, embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = torchlht.read_data(embeddings).hierarchy
    edges = [f"{name},{tree.path_names(tree.path(i))[-2]}" for i, name in enumerate(tree.classes[0])]
    also = [f"{tree.classes[0][0]},{name}" for name in tree.classes[1]] if several_parents else []
    (tmp_path / "tree.csv").write_text("\n".join(["name,parent", *dict.fromkeys([*edges, *also])]) + "\n")
    rows = [f"{i}.png,{name},{split}" for i, name in enumerate(tree.classes[0]) for split in ("train", "test")]
    (tmp_path / "birds.csv").write_text("\n".join(["path,level2,split", *rows]) + "\n")
    for i in range(len(tree.classes[0])):
        Image.new("RGB", (30, 30), (40 * i, 90, 10)).save(tmp_path / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    words = ["--hierarchy", "tree.csv", "--backbone", "small", "--epochs", "1", "--image-size", "32", "--quiet", "--no-track"]
    main(["train", "birds.csv", *words, "--out", "a"])
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    main(["evaluate", "../a"])
    main(["train", "--config", "../a/config.yaml", "--out", "b"])
    assert weights(tmp_path / "a") == weights(tmp_path / "other" / "b")


def test_flags_and_keywords_override_the_file(embeddings: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"data: {embeddings}\nepochs: 2\nmethod: lht\noption: [gamma=2, width=50]\nquiet: true\n"
    )
    main(["train", "--config", str(tmp_path / "mine.yaml"), "--epochs", "1", "--gamma", "3", "--out", str(tmp_path / "a")])
    kept = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert kept["train"]["epochs"] == 1
    assert {"gamma=3", "width=50"} <= set(kept["train"]["option"])
    run = torchlht.train(config=tmp_path / "mine.yaml", epochs=1, gamma=3, out=tmp_path / "b")
    assert weights(tmp_path / "a") == weights(run.path)


@pytest.mark.parametrize("lines", ["gamma: 2\nbias: false", "option: {gamma: 2, bias: false}", "option: [gamma=2, bias=false]"])
def test_options_of_the_method_and_numbers_are_written_as_one_would(lines: str, embeddings: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"data: {embeddings}\nepochs: 1\nquiet: true\nlr: 1e-3\n{lines}\n")
    main(["train", "--config", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "a")])
    kept = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert kept["train"]["lr"] == 0.001
    assert kept["model"]["options"].items() >= {"gamma": 2.0, "bias": False}.items()
    run = torchlht.train(config=tmp_path / "mine.yaml", out=tmp_path / "b")
    assert weights(tmp_path / "a") == weights(run.path)


def test_a_file_of_ones_own_may_say_where_the_run_goes(embeddings: Path, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    (tmp_path / "mine.yaml").write_text(f"data: {embeddings}\nepochs: 1\nquiet: true\nout: {place}\n")
    main(["train", "--config", str(tmp_path / "mine.yaml")])
    assert (place / "metrics.json").is_file()
    assert torchlht.train(config=tmp_path / "mine.yaml", epochs=2, out=tmp_path / "other").path == tmp_path / "other"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch: 3\n", "'epoch' is no option: did you mean epochs"),
        ("train: [1]\n", "x.yaml: holds no options; write a line name: value for each"),
        ("", "x.yaml: holds no options"),
        ("epochs: many\n", "x.yaml: epochs is 'many': it takes a whole number"),
        ("method: marginal\ngamma: 1\n", "'gamma' is no option"),
        ("option: gamma=1\n", "x.yaml: option is 'gamma=1': it takes a list of texts"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, said: str, embeddings: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["train", str(embeddings), "--config", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--config", str(tmp_path / "none.yaml")])
    assert stop.value.code == 2
    assert "none.yaml" in capsys.readouterr().err
