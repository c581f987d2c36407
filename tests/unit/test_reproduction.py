"""The paper's figures as data, the experiments that stand for them, and what is written beside them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean

import pytest

from torchlht.cli import main
from torchlht.commands.reproduce import runs
from torchlht.data.samples import read_data
from torchlht.errors import ConfigError, DataError
from torchlht.files import csv_text
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.comparison.contenders import find_contenders
from torchlht.lab.options import CompareArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import EXPERIMENTS, MEDIUM, Arm, Experiment, Part, find_experiment, list_experiments
from torchlht.lab.reproduction.running import DRAWINGS, Reproduction, find_data, spaced
from torchlht.lab.reproduction.subset import write_subset
from torchlht.lab.reproduction.tables import (
    Cell,
    PaperFigure,
    document,
    gain_lines,
    order_lines,
    paper_figures,
    table_header,
    table_rows,
)

ROOT = Path(__file__).parents[2]
TREE = Hierarchy.from_parents([[0, 0, 1, 2, 2], [0, 0, 1]])
MAIN = {"cub-main": "species", "aircraft-main": "model", "cars-main": "model"}


# ---- the paper's figures -------------------------------------------------------------------------------------------


def test_every_mean_accuracy_of_the_paper_is_the_mean_of_its_levels() -> None:
    levels: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for cell, value in paper_figures().items():
        if cell.metric == "ACC":
            levels[cell.table, cell.setting, cell.method].append(value)
    means = {cell: value for cell, value in paper_figures().items() if cell.metric == "mACC"}
    assert len(means) == 3 * 5 * 8 + 3 * 2
    for cell, value in means.items():
        assert value == pytest.approx(mean(levels[cell.table, cell.setting, cell.method]), abs=0.1 + 1e-9), cell


def best_other(table: str, setting: str, level: str, metric: str) -> tuple[float, float]:
    """LHT's figure and the best of the others', those quoted from other papers included."""
    row = {
        c.method: v
        for c, v in paper_figures().items()
        if (c.table, c.setting, c.level, c.metric) == (table, setting, level, metric)
    }
    return row.pop("LHT"), max(row.values())


@pytest.mark.parametrize(
    ("table", "mean_gain", "finest_gain"), [("cub-main", 2.0, 5.0), ("aircraft-main", 1.4, 2.6), ("cars-main", 6.3, 11.7)]
)
def test_gains_at_90_percent_are_those_of_the_tables_not_of_the_text(table: str, mean_gain: float, finest_gain: float) -> None:
    for level, metric, gain in (("all", "mACC", mean_gain), (MAIN[table], "ACC", finest_gain)):
        lht, other = best_other(table, "R=90", level, metric)
        assert lht - other == pytest.approx(gain, abs=0.051)


def test_at_no_mask_the_paper_is_not_ahead_everywhere() -> None:
    assert best_other("aircraft-main", "R=0", "all", "mACC") == (95.3, 95.3)
    lht, other = best_other("cars-main", "R=0", "all", "mACC")
    assert lht < other


# ---- the experiments -----------------------------------------------------------------------------------------------


def cells_of(experiment: Experiment) -> set[tuple[str, str, str]]:
    """Table, setting and method of the paper that an experiment stands for."""
    return {
        (experiment.table, part.called(mask, by_paper=True), arm.paper)
        for part in experiment.parts
        for mask in part.masks
        for arm in part.arms
        if arm.paper
    }


def test_every_row_of_the_paper_has_an_experiment_and_every_named_arm_a_row() -> None:
    wanted = {(c.table, c.setting, c.method) for c in paper_figures() if c.table != "lowshot-ilsvrc"}
    wanted = {row for row in wanted if row[2] != "HRN (reported)"}  # another paper's own number; our hrn stands beside HRN
    made = set().union(*(cells_of(experiment) for experiment in EXPERIMENTS))
    assert wanted - made == set()
    perturbed = {row for row in made if row[0] == "perturbed"}  # the paper tells these in words
    extra = {row for row in made - wanted if row not in perturbed}
    assert extra == set()
    assert {row[2] for row in perturbed} == {"LHT_naive", "LHT"}


def test_every_table_of_the_paper_is_an_experiments() -> None:
    assert {cell.table for cell in paper_figures()} == {e.table for e in EXPERIMENTS if e.table}


def test_names_are_unique_and_drawings_exist() -> None:
    assert len({e.name for e in EXPERIMENTS}) == len(EXPERIMENTS)
    assert {e.draw for e in EXPERIMENTS} - {""} == set(DRAWINGS)
    for experiment in EXPERIMENTS:
        assert experiment.draw or experiment.table, experiment.name
        assert len({part.name for part in experiment.parts}) == len(experiment.parts)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_contender_can_take_part(experiment: Experiment) -> None:
    for part in experiment.parts:
        words = [arm.method for arm in part.arms]
        assert len(set(words)) == len(words)
        assert len(find_contenders(words, TREE, features=True)[0]) == len(words)
        CompareArgs("x", Path(), **part.common, **{k: v for k, v in part.small.items() if k not in part.common})


def test_the_document_lists_every_experiment_and_nothing_else() -> None:
    text = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\|.*`lht reproduce ([a-z0-9-]+) ", text, flags=re.MULTILINE)
    assert listed == [experiment.name for experiment in EXPERIMENTS]


def test_lambda_is_the_papers_for_each_dataset_and_mask() -> None:
    for name, weight in (("cub-main", "0.1"), ("aircraft-main", "2"), ("cars-main", "2")):
        low, high = find_experiment(name).parts
        assert (low.masks, high.masks) == ((0.0, 0.3, 0.5, 0.7), (0.9,))
        assert f"lht-paper:confusion_weight={weight}" in [arm.method for arm in low.arms]
        assert "lht-paper:confusion_weight=0.01" in [arm.method for arm in high.arms]


# ---- running -------------------------------------------------------------------------------------------------------


def work(name: str, tmp_path: Path, data: str = "birds.npz", **options: object) -> Reproduction:
    return Reproduction(find_experiment(name), ReproduceArgs(name, **options), tmp_path, data)  # type: ignore[arg-type]


def test_full_scale_is_the_papers_recipe(tmp_path: Path) -> None:
    full = work("cub-main", tmp_path, "cub.csv", scale="full")
    low, _ = full.experiment.parts
    options = full.comparison(low)
    assert options.seed_list() == [10, 100, 1]
    assert options.method_list() == [
        "hd-cnn",
        "hmcn",
        "c-hmcnn",
        "soft-labels",
        "fgon",
        "hrn",
        "lht-paper:confusion_weight=0.1",
    ]
    train = options.training(mask=0.3)
    assert (train.backbone, train.image_size, train.epochs, train.augment) == ("resnet50", 448, 200, "paper")
    assert (train.lr, train.weight_decay, train.batch_size, train.optimizer) == (2e-3, 5e-4, 8, "sgd")
    assert (train.mask, train.mask_rounding, train.mask_seed, train.freeze) == (0.3, "lht", 10, False)


def test_small_scale_freezes_pictures_and_takes_features_as_they_are(tmp_path: Path) -> None:
    pictures = work("cub-main", tmp_path, "cub.csv").comparison(find_experiment("cub-main").parts[1])
    assert (pictures.freeze, pictures.backbone) == (True, "efficientnet_lite0")
    features = work("cub-main", tmp_path).comparison(find_experiment("cub-main").parts[1])
    assert (features.freeze, features.backbone) == (False, "auto")
    assert len(features.method_list()) == 18


def test_parts_carry_their_own_options(tmp_path: Path) -> None:
    hidden = work("two-levels-hidden-cub", tmp_path)
    assert {hidden.comparison(part).mask_levels for part in hidden.experiment.parts} == {2}
    kinds = work("perturbed", tmp_path)
    assert [kinds.comparison(part).perturb for part in kinds.experiment.parts] == [
        "none",
        "renamed",
        "stale_prior",
        "rewired",
    ]
    small, full = (work("low-resolution-cub", tmp_path, "cub.csv", scale=scale) for scale in ("small", "full"))
    assert [w.comparison(w.experiment.parts[0]).image_size for w in (small, full)] == [112, 224]
    networks = work("backbones-cub", tmp_path, "cub.csv", scale="full")
    assert {networks.comparison(part).backbone for part in networks.experiment.parts} == {
        "resnet50",
        "convnext_base",
        "swin_base_patch4_window7_224",
    }
    frozen = work("backbones-cub", tmp_path, "cub.csv")
    assert frozen.comparison(frozen.experiment.parts[2]).backbone == "convnext_base"


def test_runs_are_counted(tmp_path: Path) -> None:
    assert runs(find_experiment("cub-main"), "full") == 7 * 5 * 3
    assert runs(find_experiment("cub-main"), "small") == 18 * 5 * 3
    assert runs(find_experiment("attributes-cub"), "full") == 0


def test_medium_scale_trains_the_last_stages_with_the_same_options_for_all(tmp_path: Path) -> None:
    experiment = find_experiment("cub-main").at("medium")
    medium = Reproduction(experiment, ReproduceArgs("cub-main", scale="medium"), tmp_path, "cub.csv")
    assert [part.name for part in experiment.parts] == ["subset-R-50", "subset-R-90", "all-R-50", "all-R-90"]
    options = [medium.comparison(part) for part in experiment.parts]
    assert [one.masks() for one in options] == [[0.5], [0.9]] * 2
    assert [one.seed_list() for one in options] == [[10, 100, 1]] * 2 + [[10]] * 2
    assert [Path(one.data).name for one in options] == ["subset.csv"] * 2 + ["cub.csv"] * 2
    rivals, ours = ["hd-cnn", "fgon", "hrn:channels=128"], ["multihead", "marginal", "lht", "lht:semi=both"]
    assert options[1].method_list() == [*rivals, "lht-paper:confusion_weight=0.01", *ours]
    for one in options:
        assert {name: getattr(one, name) for name in MEDIUM} == MEDIUM
        assert (one.backbone, one.freeze, one.select, one.mask_rounding) == ("efficientnet_lite0", False, "last", "lht")
    assert runs(find_experiment("cub-main"), "medium") == 8 * 2 * (3 + 1)
    assert "families" not in medium.how()
    assert "all classes whose parent has 5 to 8 of them" in medium.how()


@pytest.mark.parametrize("tree", ["cub", "cub-published"])
def test_the_subset_is_the_families_of_five_to_eight_species(tree: str, tmp_path: Path) -> None:
    birds = Hierarchy.read(ROOT / f"src/torchlht/trees/{tree}.json")
    rows = [["path", "order", "family", "species", "split"]]
    for leaf in range(birds.sizes[0]):
        species, family, order = (birds.classes[k][c] for k, c in enumerate(birds.path(leaf)))
        rows += [[f"{leaf}-{split}.jpg", order, family, species, split] for split in ("train", "test")]
    (tmp_path / "birds.csv").write_text(csv_text(rows))
    write_subset(str(tmp_path / "birds.csv"), tmp_path / "data" / "subset.csv", 5, 8)
    found = read_data(tmp_path / "data" / "subset.csv")
    assert found.hierarchy.sizes == (59, 9, 5)
    assert len(found) == 2 * 59
    families = Counter(row[2] for row in rows[1::2])
    assert set(found.hierarchy.classes[1]) == {name for name, count in families.items() if 5 <= count <= 8}
    assert str(found.images[0]).startswith(str(tmp_path)), "pictures stay where they are"  # type: ignore[index]
    assert sorted(found.split.tolist()) == ["test"] * 59 + ["train"] * 59


def test_features_do_not_do_where_pictures_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    file.touch()
    with pytest.raises(ConfigError, match="grad-cam-cub needs pictures: pass the cub archive with root"):
        find_data(find_experiment("grad-cam-cub"), ReproduceArgs("grad-cam-cub", root=file), tmp_path)
    assert find_data(find_experiment("cub-main"), ReproduceArgs("cub-main", root=file), tmp_path) == str(file)
    with pytest.raises(ConfigError, match="cub-main needs pictures"):
        find_data(find_experiment("cub-main"), ReproduceArgs("cub-main", root=file, scale="medium"), tmp_path)


def test_without_data_it_says_where_it_is_had(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cub is not prepared yet.*vision\.caltech\.edu"):
        find_data(find_experiment("cub-main"), ReproduceArgs("cub-main"), tmp_path)
    with pytest.raises(DataError, match="nowhere: no such file or folder; root is the cars archive"):
        find_data(find_experiment("cars-main"), ReproduceArgs("cars-main", root=Path("nowhere")), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cub-mian"], "unknown experiment 'cub-mian': did you mean cub-main"),
        (["cub-main", "--root", "nowhere"], "nowhere: no such file or folder"),
        (["cars-main", "--scale", "medium"], "cars-main has small and full alone; cub-main has medium"),
        (["cub-main", "--parts", "R-90,nope"], "--parts R-90,nope: cub-main has R-0-70, R-90 at this scale"),
        (["list", "zebra*"], "no experiment matches 'zebra*'"),
    ],
)
def test_a_mistake_exits_with_2_and_a_sentence(arguments: list[str], told: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *arguments])
    assert stop.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_the_list_shows_every_name(capsys) -> None:
    main(["reproduce", "list"])
    shown = capsys.readouterr().out
    assert [e.name for e in EXPERIMENTS if e.name not in shown] == []
    assert len(list_experiments("*-main")) == 3


# ---- tables --------------------------------------------------------------------------------------------------------


def figure(method: str, paper: str, values: tuple[float, ...], known: float | None, setting: str = "R=90") -> PaperFigure:
    return PaperFigure(setting, "species", "ACC", Arm(method, paper), values, known)


FIGURES = [
    figure("hd-cnn", "HD-CNN", (0.30, 0.32), 58.3),
    figure("fgon", "FGoN", (0.35, 0.37), 63.8),
    figure("lht-paper:confusion_weight=0.01", "LHT", (0.34, 0.34), 68.8),
    figure("lht", "", (0.42, 0.44), None),
]


def test_ours_stand_beside_the_papers() -> None:
    assert table_header(FIGURES) == ["setting", "method", "in the paper", "species"]
    assert next(table_rows(FIGURES)) == ["R=90", "hd-cnn", "HD-CNN", "31.0 ± 1.4 (58.3)"]
    assert list(table_rows(FIGURES))[3] == ["R=90", "lht", "–", "43.0 ± 1.4"]


def test_the_number_of_test_samples_stands_beside_the_figures() -> None:
    counted = [dataclasses.replace(one, samples=" (n = 51)") for one in FIGURES]
    for figures, told in ((counted, "In percent on test samples: species (n = 51); mean"), (FIGURES, "on test samples; mean")):
        assert told in document(find_experiment("cub-main"), figures, how="", command="", pictures=())


def test_orders_are_compared_and_gains_computed() -> None:
    [line] = order_lines(FIGURES)
    assert line == "R=90: the paper LHT > FGoN > HD-CNN; here FGoN > LHT > HD-CNN (Kendall's τ 0.33)"
    [gain] = gain_lines(FIGURES)
    assert gain == "R=90: LHT over the best other, species: +5.0 in the paper, -2.0 here"
    assert list(order_lines(FIGURES[:2])) == []


def test_the_document_says_how_it_was_made_and_which_epoch() -> None:
    experiment = dataclasses.replace(find_experiment("cub-main"), notes=("A slip.",))
    text = document(experiment, FIGURES, how="Scale small.", command="lht reproduce cub-main", pictures=["![a](a.png)"])
    for part in (
        "# cub-main",
        "Scale small.",
        "$ lht reproduce cub-main",
        "nothing is chosen on test samples",
        "- A slip.",
        "a.png",
    ):
        assert part in text


def test_the_papers_own_name_of_a_setting_is_used_to_find_its_cell() -> None:
    part = Part("x", (), (0.9,), "rewired, R={:g}", "Aircraft R={:g}")
    assert (part.called(0.9), part.called(0.9, by_paper=True)) == ("rewired, R=90", "Aircraft R=90")
    assert Cell("perturbed", "Aircraft R=0", "model", "LHT", "ACC") in paper_figures()


@pytest.mark.parametrize(("n", "count"), [(10, 4), (4, 4), (3, 4), (1, 2)])
def test_spaced_positions_are_distinct_and_inside(n: int, count: int) -> None:
    found = spaced(n, count)
    assert len(set(found)) == len(found) == min(n, count)
    assert all(0 <= i < n for i in found)
