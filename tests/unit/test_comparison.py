"""What a comparison says: who takes part, tables, paired differences, and when it says nothing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from torchlht.errors import ConfigError, MissingExtraError, RunError
from torchlht.files import write_yaml
from torchlht.heads.method import list_methods
from torchlht.heads.methods.logistic import Logistic
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.comparison import contenders
from torchlht.lab.comparison.contenders import (
    Candidate,
    Contender,
    Trial,
    candidates,
    choose,
    find_contenders,
    run_name,
    summary,
    trial,
    write_account,
)
from torchlht.lab.comparison.drawing import draw_accuracy
from torchlht.lab.comparison.grid import cells, judge, tuning_cells
from torchlht.lab.comparison.results import document, mean_std, read_results, shown_results, verdicts, write_results
from torchlht.lab.options import CompareArgs
from torchlht.learn.options import preset
from torchlht.measure.verdict import interval, tell_apart

TREE = Hierarchy.from_parents([[0, 0, 1, 1]])
COLUMNS = (
    (Path(__file__).parents[1] / "golden" / "compare" / "results.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
)


ALONE = "(± in points, from 3 seeds alone: which test samples there are is not counted)"


def metrics(species: float, order: float = 0.9, **more: Any) -> dict[str, Any]:
    level = {"accuracy_with_siblings": 0.5, "mean_class_recall": 0.4, "macro_precision": 0.4, "macro_f1": 0.4}
    level |= {"macro_auc": 0.8, "ece": 0.1}
    return {
        "levels": [{"name": "order", "accuracy": order, **level}, {"name": "species", "accuracy": species, **level}],
        "mean_accuracy": (order + species) / 2,
        "full_path_accuracy": 0.3,
        "inconsistency": 0.1,
        "mistake_severity": None,
        "hierarchical_precision": 0.6,
        "hierarchical_recall": 0.6,
        "hierarchical_f1": 0.6,
        "hierarchical_distance": {"1": 1.0, "5": 1.5, "20": 2.0},
        "train_seconds": 3.0,
        "seconds_per_step": 0.01,
        "parameters": 1_230_000,
        **more,
    }


def write(folder: Path, scores: dict[str, list[float]], mask: float = 0.9) -> Path:
    rows = [(method, mask, seed, metrics(v)) for method, values in scores.items() for seed, v in enumerate(values)]
    write_results(folder, rows)
    return folder


# ---- which differences are real ------------------------------------------------------------------------------------


def test_a_paired_difference_beyond_seed_noise_is_shown_although_the_spreads_overlap() -> None:
    """Both methods move together from seed to seed; the paired difference is steady."""
    found = tell_apart("here", {"lht": [50, 40, 45], "flat": [48.1, 38, 42.9]})
    assert found.text() == f"here: winner lht. lht is ahead of flat (2.0 ± 0.2): shown. {ALONE}"


def test_a_difference_within_seed_noise_is_not_shown() -> None:
    found = tell_apart("here", {"lht": [50, 40, 45], "flat": [40, 44, 45]})
    assert found.text() == f"here: no difference shown at the top. lht is not shown to differ from flat (2.0 ± 17.9). {ALONE}"


def test_of_figures_where_less_is_better_the_lowest_wins() -> None:
    found = tell_apart("here", {"lht": [1.2, 1.3, 1.25], "flat": [2.2, 2.3, 2.26]}, "lower", "levels")
    assert found.text() == f"here: winner lht. lht is ahead of flat (1.0 ± 0.0): shown. {ALONE.replace('points', 'levels')}"


def test_one_seed_shows_nothing() -> None:
    assert (
        tell_apart("here", {"lht": [50], "flat": [10]})
        .text()
        .endswith("lht before flat (40.0), in one seed: no spread, nothing shown.")
    )


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_with_two_methods_the_interval_is_the_paired_t_interval(seeds: int) -> None:
    table = np.random.default_rng(seeds).normal(size=(2, seeds))
    low, high = stats.ttest_rel(*table).confidence_interval(0.95)
    assert interval(table) == pytest.approx((high - low) / 2, rel=1e-6)


def test_equal_methods_are_rarely_told_apart_however_many_there_are() -> None:
    """The whole point: 12 equal methods, 3 seeds with effects of their own; a difference is claimed in about one case of 20."""
    rng = np.random.default_rng(0)
    claims = 0
    for _ in range(150):
        table = rng.normal(size=(12, 3)) + rng.normal(scale=5, size=(1, 3))
        claims += bool(tell_apart("", {str(i): row for i, row in enumerate(table.tolist())}).ahead)
    assert claims <= 15


def test_a_method_that_is_better_is_found_among_many() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(scale=0.5, size=(12, 3)) + rng.normal(scale=5, size=(1, 3))
    table[4] += 5
    found = tell_apart("", {str(i): row for i, row in enumerate(table.tolist())})
    assert found.best == "4"
    assert not found.level
    assert list(found.ahead.values()) == sorted(found.ahead.values())


def test_long_lists_are_cut_and_say_so() -> None:
    found = tell_apart("here", {"best": [90, 91], **{f"m{i}": [10 + i, 11 + i] for i in range(6)}})
    assert "ahead of m5 (75.0 ± 0.0), m4 (76.0 ± 0.0) and 4 others (up to 80.0): shown" in found.text(limit=3)


def test_verdicts_are_given_at_each_mask_and_over_all_of_them(tmp_path: Path) -> None:
    rows = [
        (method, mask, seed, metrics(base - 0.3 * mask + 0.01 * seed))
        for method, base in (("flat", 0.5), ("lht", 0.6))
        for mask in (0.0, 0.9)
        for seed in range(3)
    ]
    write_results(tmp_path, rows)
    found = verdicts(read_results(tmp_path))
    assert [v.where for v in found] == [
        f"{m}, {level}" for level in ("species", "mACC") for m in ("0% masked", "90% masked", "all masks")
    ]
    assert all(v.best == "lht" and v.ahead.keys() == {"flat"} for v in found)


# ---- tables --------------------------------------------------------------------------------------------------------


def test_results_are_tidy_and_tabled_by_mask_with_the_best_last(tmp_path: Path) -> None:
    write(tmp_path, {"lht": [0.5, 0.52, 0.51], "flat": [0.3, 0.31, 0.32]})
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert list(rows[0])[:25] == COLUMNS
    assert len(rows) == 2 * 3 * 2
    assert rows[0]["mistake_severity"] == rows[0]["accuracy_without_siblings"] == ""
    text = (tmp_path / "table.md").read_text().splitlines()
    assert text[:4] == [
        "| masked | method | order | species | mACC |",
        "| --- | --- | --- | --- | --- |",
        "| 90% | flat | 90.0 ± 0.0 | 31.0 ± 1.0 | 60.5 ± 0.5 |",
        "| 90% | lht | 90.0 ± 0.0 | 51.0 ± 1.0 | 70.5 ± 0.5 |",
    ]
    assert "| lht | 1.23 M | 10.0 | 3 |" in text
    assert mean_std([0.03]) == "3.0"
    assert mean_std([]) == "–"


def test_without_test_labels_at_the_finest_level_the_next_one_is_compared(tmp_path: Path) -> None:
    rows = [("lht", 0.5, 0), ("lht", 0.52, 1), ("flat", 0.3, 0), ("flat", 0.31, 1)]
    found = {(method, seed): metrics(0.5, order) for method, order, seed in rows}
    for one in found.values():
        one["levels"][1] = dict.fromkeys(one["levels"][1]) | {"name": "species"}
    results = write_results(tmp_path, [(method, 0.9, seed, one) for (method, seed), one in found.items()])
    assert results.finest == "order"
    assert "| 90% | lht | 51.0 ± 1.4 | – |" in (tmp_path / "table.md").read_text()
    assert verdicts(results)[0].where == "90% masked, order"
    assert verdicts(results)[0].best == "lht"
    write_results(tmp_path, [(m, 0.9, 0, {**one, "levels": [one["levels"][1]]}) for (m, _), one in list(found.items())[::2]])
    assert any("next: lht predict" in str(part) for part in shown_results(tmp_path, "x.npz"))


def test_a_diverged_run_is_named_and_its_method_takes_no_part_in_the_verdict(tmp_path: Path) -> None:
    rows = [(m, 0.9, s, metrics(v + 0.01 * s)) for m, v in (("a", 0.5), ("b", 0.2), ("c", 0.9)) for s in range(2)]
    rows[5] = ("c", 0.9, 1, {"diverged": "the loss is nan"})
    write_results(tmp_path, rows)
    assert "Diverged, and left out above: c, 90% masked, seed 1." in (tmp_path / "table.md").read_text()
    assert {v.best for v in verdicts(read_results(tmp_path))} == {"a"}


def test_rules_of_answering_are_rows_of_their_own(tmp_path: Path) -> None:
    write_results(tmp_path, [("lht", 0.9, 0, metrics(0.5, rules={"crm": metrics(0.4)}))])
    results = read_results(tmp_path)
    assert results.methods == ["lht", "lht + crm"]
    assert results.get("lht + crm", 0.9, "accuracy") == [0.4]
    assert results.at(0.9) == ["lht"]
    text = document(results)
    assert "| 90% | lht + crm | 40.0 (-10.0) | 65.0 (-5.0) | – | 30.0 |" in text
    assert text.count("lht + crm") == 1


def test_what_a_rule_changes_is_over_the_seeds_that_have_both_figures(tmp_path: Path) -> None:
    """Severity is not measured where nothing is wrong: in the first seed by the method, in the last by the rule."""
    own, ruled = (None, 2.0, 3.0), (1.0, 1.5, None)
    rows = [
        ("lht", 0.9, seed, metrics(0.5, mistake_severity=a, rules={"crm": metrics(0.5, mistake_severity=b)}))
        for seed, (a, b) in enumerate(zip(own, ruled, strict=True))
    ]
    write_results(tmp_path, rows)
    assert "| 1.25 (-0.50) |" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("masks", [(0.9,), (0.0, 0.5, 0.9)], ids=["dots", "lines"])
def test_a_figure_is_drawn_for_one_mask_and_for_several(tmp_path: Path, masks: tuple[float, ...]) -> None:
    rows = [
        (m, mask, s, metrics(0.5 + 0.01 * s)) for m in ("a", "b") for mask in masks for s in range(2) if (m, mask) != ("b", 0.9)
    ]
    draw_accuracy(write_results(tmp_path, rows), tmp_path / "accuracy.png")
    with Image.open(tmp_path / "accuracy.png") as picture:
        assert picture.width > 600
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
    assert not list(tmp_path.glob("*.tmp*"))


# ---- who takes part ------------------------------------------------------------------------------------------------


def test_all_is_every_method_and_patterns_and_options_work() -> None:
    found, left_out = find_contenders(["all"], TREE, features=True)
    assert [c.label for c in found] == list_methods()
    assert left_out == []
    found, _ = find_contenders(["lht*", "lht:gamma=1:features=split", "lht", "lht-naive"], TREE, features=True)
    assert [c.label for c in found] == [*list_methods("lht*"), "lht:gamma=1:features=split", "lht-naive"]
    assert found[-2] == Contender("lht:gamma=1:features=split", "lht", ("gamma=1", "features=split"))
    assert run_name(found[-2].label, 0.125, 0, 2) == "lht-gamma=1-features=split-R12.5-c2-s0"


def test_peers_are_left_out_of_all_on_pictures_and_refused_by_name() -> None:
    found, left_out = find_contenders(["all"], TREE, features=False)
    assert left_out == ["hiclass", "logistic"]
    assert {"hiclass", "logistic"}.isdisjoint(c.label for c in found)
    with pytest.raises(ConfigError, match="hiclass trains on features only: compare with freeze"):
        find_contenders(["hiclass"], TREE, features=False)


def test_a_peer_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logistic, "package", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"logistic needs an optional package: .*\[peers\]'"):
        find_contenders(["logistic"], TREE, features=True)
    assert find_contenders(["all"], TREE, features=True)[1] == ["logistic"]


def test_all_leaves_out_what_does_not_take_the_tree() -> None:
    found, left_out = find_contenders(["all"], Hierarchy.from_parents([], classes=[["a", "b"]]), features=True)
    assert left_out == ["hiclass"]
    assert len(found) == len(list_methods()) - 1


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("lth", "unknown method 'lth': did you mean lht"),
        ("x*", "no method has this name"),
        ("lht:gama=1", "no option 'gama': did you mean gamma"),
        ("lht:gamma=much", "option gamma of lht is 'much': it takes a number"),
        ("c-hmcnn:mil=perhaps", "it takes true or false"),
        ("lht:gamma", "write it as name=value"),
        ("lht:rank=0", "rank is 0"),
    ],
)
def test_wrong_words_are_told(word: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        find_contenders([word], TREE, features=True)


def test_options_for_everyone_reach_the_methods_that_have_them_and_ones_own_come_after() -> None:
    words = ["flat", "lht:gamma=1", "logistic"]
    found, _ = find_contenders(words, TREE, features=True, option=("input_dropout=0.3", "gamma=2"))
    assert [c.option for c in found] == [("input_dropout=0.3",), ("input_dropout=0.3", "gamma=2", "gamma=1"), ()]
    assert [c.label for c in found] == words
    assert found[1].grid() == {}  # gamma was given
    with pytest.raises(ConfigError, match="option=gamma=2: none of these methods has this option"):
        find_contenders(["flat"], TREE, features=True, option=("gamma=2",))


# ---- the grid ------------------------------------------------------------------------------------------------------


def arguments(out: Path, **options: Any) -> CompareArgs:
    return CompareArgs("x.npz", out, **{"methods": "flat,lht", "mask": "0,0.9", "seeds": 2, **options})


def test_the_grid_has_every_method_mask_and_seed_once_and_shares_everything_else(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    grid = cells(args, find_contenders(args.method_list(), TREE, features=True)[0])
    assert len({cell.run.path for cell in grid}) == len(grid) == 8
    for cell in grid:
        twins = [other.args.make_mask() for other in grid if (other.mask, other.seed) == (cell.mask, cell.seed)]
        assert all(mask == cell.args.make_mask() for mask in twins)


def test_masks_that_round_alike_have_runs_of_their_own(tmp_path: Path) -> None:
    args = arguments(tmp_path, mask="0.121,0.124", seeds=1)
    grid = cells(args, [Contender("flat", "flat")])
    assert [cell.run.path.name for cell in grid] == ["flat-R12.1-s0", "flat-R12.4-s0"]


@pytest.mark.parametrize(("mask", "told"), [("0,x", "numbers from 0 to 1"), ("2", "mask is 2.0")])
def test_wrong_masks_are_told(tmp_path: Path, mask: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        arguments(tmp_path, mask=mask)


EARLIER = """data: x.npz
methods: [flat, lht]
mask: [0.0, 0.9]
seeds: [0, 1]
preset: default
hierarchy: null
mask_levels: 1
epochs: 3
lr: null
input_dropout: 0.3
rules: []
"""


def test_a_comparison_of_an_earlier_version_goes_on_with_the_options_it_was_started_with(tmp_path: Path) -> None:
    (tmp_path / "compare.yaml").write_text(EARLIER)
    options: dict[str, Any] = {"epochs": 3, "option": {"input_dropout": 0.3}, "resume": True}
    arguments(tmp_path, **options, workers=3, jobs=7).claim("compare.yaml", "a comparison")
    for other in ({"epochs": 4}, {"augment": "none"}, {"option": ()}, {"seeds": 1}, {"tune": True}):
        with pytest.raises(RunError, match="was started with other options"):
            arguments(tmp_path, **options | other).claim("compare.yaml", "a comparison")
    with pytest.raises(RunError, match="add resume to continue it"):
        arguments(tmp_path, **options | {"resume": False}).claim("compare.yaml", "a comparison")


@pytest.mark.parametrize("more", [{"seeds": 3}, {"seeds": "0,1,7"}, {"mask": "0.9,0,0.5"}, {"methods": "flat,lht,hxe"}])
def test_a_comparison_can_be_resumed_with_more_seeds_masks_or_methods(tmp_path: Path, more: dict[str, Any]) -> None:
    options: dict[str, Any] = {"methods": "flat,lht", "mask": "0,0.9", "seeds": 2}
    write_yaml(tmp_path / "compare.yaml", arguments(tmp_path, **options).settings())
    arguments(tmp_path, **options | more, resume=True).claim("compare.yaml", "a comparison")


@pytest.mark.parametrize("earlier", [True, False])
def test_a_comparison_under_a_preset_goes_on_whether_the_file_has_its_values_or_not(tmp_path: Path, earlier: bool) -> None:
    args = arguments(tmp_path, **preset("paper") | {"epochs": 3, "clip": 0.0 if earlier else 5.0}, resume=True)
    write_yaml(tmp_path / "compare.yaml", args.settings())
    if earlier:
        (tmp_path / "compare.yaml").write_text(EARLIER.replace("default", "paper").replace("input_dropout: 0.3\n", ""))
    args.claim("compare.yaml", "a comparison")


# ---- tuning --------------------------------------------------------------------------------------------------------


def test_candidates_are_learning_rates_times_the_own_grid_with_the_defaults_first() -> None:
    found = candidates(Contender("lht", "lht"))
    assert found[0] == Candidate(1.0, ("gamma=None",))  # by the size of each level
    assert len(found) == len(set(found)) == len(contenders.LR_FACTORS) * 2
    assert {c.option for c in candidates(Contender("lht:gamma=1", "lht", ("gamma=1",)))} == {()}
    assert {c.lr_factor for c in candidates(Contender("logistic", "logistic"))} == {1.0}
    assert {c.option for c in candidates(Contender("lht-paper", "lht-paper"))} == {()}


def test_trials_see_validation_samples_only_and_final_runs_train_on_everything(tmp_path: Path) -> None:
    args = arguments(tmp_path, methods="lht", mask="0.9", tune=True, tune_seeds=2)
    lht = Contender("lht", "lht")
    trials = list(tuning_cells(args, [lht], 0.05))
    assert len({cell.run.path for cell in trials}) == len(trials) == 12
    assert all(not cell.args.test and cell.args.val == 0.2 for cell in trials)
    chosen = {("lht", 0.9): Candidate(3.0, ("gamma=1.0",))}
    for cell in cells(args, [lht], chosen, 0.05):
        assert cell.args.lr == pytest.approx(0.15)
        assert cell.args.option == ("gamma=1.0",)
        assert cell.args.val is None
        assert cell.args.test


def test_the_best_on_validation_is_chosen_the_first_of_equals_and_never_a_diverged_one() -> None:
    lht = Contender("lht", "lht")
    a, b, c = (Candidate(f) for f in (1.0, 0.3, 3.0))
    found = [
        trial(lht, 0.9, a, [{"validation": {"val_mean": 0.5}, "train_seconds": 2}, {"validation": {"val_mean": 0.7}}]),
        trial(lht, 0.9, b, [{"validation": {"val_mean": 0.6}, "train_seconds": 3}] * 2),
        trial(lht, 0.9, c, [{"validation": {"val_mean": 0.9}}, {"diverged": "nan"}]),
    ]
    assert [one.score for one in found] == [pytest.approx(0.6), pytest.approx(0.6), pytest.approx(-0.05)]
    assert choose(found) == {("lht", 0.9): a}
    assert choose(found[1:]) == {("lht", 0.9): b}


def test_the_account_has_every_candidate_its_cost_and_the_choice(tmp_path: Path) -> None:
    lht = Contender("lht", "lht")
    trials = [
        Trial(lht, 0.9, Candidate(1.0, ("gamma=6.0",)), 0.5, 60.0),
        Trial(lht, 0.9, Candidate(3.0, ("gamma=1.0",)), 0.7, 90.0),
        Trial(lht, 0.9, Candidate(0.3), -1.0, 30.0),
    ]
    write_account(tmp_path / "tuning.csv", trials)
    rows = list(csv.DictReader((tmp_path / "tuning.csv").read_text().splitlines()))
    assert [row["chosen"] for row in rows] == ["0", "1", "0"]
    assert [row["validation_mean_accuracy"] for row in rows] == ["0.50000", "0.70000", "diverged"]
    assert summary(trials)[-1] == "| lht | 3 | lr×3 gamma=1.0 | 3.0 |"


def test_trials_are_judged_by_candidate_over_seeds(tmp_path: Path) -> None:
    args = arguments(tmp_path, methods="flat", mask="0.9", tune=True, tune_seeds=2)
    grid = list(tuning_cells(args, [Contender("flat", "flat")], 0.05))
    for i, cell in enumerate(grid):
        cell.run.path.mkdir(parents=True)
        cell.run.write_metrics({"validation": {"val_mean": 0.1 * i}, "train_seconds": 1.0})
    found = judge(grid)
    assert [one.score for one in found] == [pytest.approx(0.15), pytest.approx(0.25), pytest.approx(0.35)]
    assert all(one.seconds == 2.0 for one in found)
