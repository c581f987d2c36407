"""Intervals that count seeds and test samples: against naive sums, how often they hold, and what a verdict says of them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from torchlht.errors import RunError
from torchlht.lab.comparison.contenders import run_name
from torchlht.lab.comparison.drawing import draw_accuracy
from torchlht.lab.comparison.results import Comparison, document, verdicts, write_results
from torchlht.measure.metrics import REGISTER
from torchlht.measure.outcomes import FILE, Outcomes, Recorder
from torchlht.measure.verdict import half_widths, interval, tell_apart, widest


def drawn(rng: np.random.Generator, methods: int, seeds: int, samples: int, noise: float = 0.02) -> tuple[Any, Any]:
    """Right or wrong, and how often each method is right in truth: samples are hard or easy for all, and for a method."""
    skill = np.linspace(0, 0.2, methods)
    shared, own, again = 1.2 * rng.normal(size=samples), 0.5 * rng.normal(size=(methods, 1, samples)), 0.3
    seed = noise * (rng.normal(size=(methods, seeds, 1)) + rng.normal(size=(1, seeds, 1)))
    ease = skill[:, None, None] + shared + own + seed + again * rng.normal(size=(methods, seeds, samples))
    return (ease > 0).astype(float), stats.norm.cdf(skill / np.sqrt(1.44 + 0.25 + 2 * noise**2 + again**2))


def share_covered(methods: int, seeds: int, samples: int, draws: int, *, alone: bool = False) -> float:
    """How often the intervals of all differences hold, in percent."""
    rng, hits = np.random.default_rng(7), 0
    for _ in range(draws):
        outcomes, truth = drawn(rng, methods, seeds, samples)
        means = outcomes.mean(axis=(1, 2))
        wrong = abs((means[:, None] - means) - (truth[:, None] - truth))
        halves = np.full_like(wrong, interval(outcomes.mean(axis=2))) if alone else half_widths(outcomes)
        hits += all(wrong[a, b] <= halves[a, b] for a, b in combinations(range(methods), 2))
    return 100 * hits / draws


# ---- the intervals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("methods", "seeds"), [(2, 3), (2, 5), (4, 3)])
def test_with_few_samples_intervals_hold_where_those_over_seeds_alone_do_not(methods: int, seeds: int) -> None:
    """The whole point: 50 test samples. `benchmarks/coverage.py` is the long version."""
    assert 93 <= share_covered(methods, seeds, 50, 300) <= 98.5
    assert share_covered(methods, seeds, 50, 300, alone=True) < 92


def test_with_one_seed_it_is_the_paired_t_interval_over_samples() -> None:
    outcomes, _ = drawn(np.random.default_rng(0), 2, 1, 40)
    low, high = stats.ttest_rel(*outcomes[:, 0]).confidence_interval(0.95)
    assert half_widths(outcomes)[0, 1] == pytest.approx((high - low) / 2, rel=1e-6)


def test_with_endless_samples_it_is_the_interval_over_seeds() -> None:
    """Samples that are all alike have no noise of their own."""
    scores = np.random.default_rng(0).normal(size=(3, 4))
    outcomes = np.repeat(scores[:, :, None], 100_000, axis=2)
    assert half_widths(outcomes)[0, 1] == pytest.approx(interval(scores), rel=1e-3)


def test_the_parts_of_the_variance_are_those_of_a_naive_analysis() -> None:
    outcomes, _ = drawn(np.random.default_rng(0), 3, 4, 30)
    d = outcomes[0] - outcomes[2]  # (seeds, samples)
    samples = d.mean(axis=0).var(ddof=1) / 30
    table, rest = outcomes.mean(axis=2), 0.0
    for m in range(3):
        for s in range(4):
            for i in range(30):
                ab, ac, bc = table[m, s], outcomes[m, :, i].mean(), outcomes[:, s, i].mean()
                a, b, c = outcomes[m].mean(), outcomes[:, s].mean(), outcomes[:, :, i].mean()
                rest += (outcomes[m, s, i] - ab - ac - bc + a + b + c - outcomes.mean()) ** 2
    twice = rest / (2 * 3 * 29) / 30
    blocks = sum(
        (table[m, s] - table[m].mean() - table[:, s].mean() + table.mean()) ** 2 for m in range(3) for s in range(4)
    ) / (2 * 3)
    seeds = 2 * max(0, blocks - 6 / 7 * twice) / 4
    share = seeds / (samples + seeds)
    critical = widest(3, 29) + (widest(3, 6) - widest(3, 29)) * share
    assert half_widths(outcomes)[0, 2] == pytest.approx(critical * np.sqrt((samples + seeds) / 2), rel=1e-9)


def test_methods_that_answer_alike_are_compared_more_sharply_but_never_beyond_one_sample() -> None:
    outcomes, _ = drawn(np.random.default_rng(0), 3, 3, 200)
    outcomes[1] = outcomes[0]
    outcomes[1, :, :2] = 1 - outcomes[1, :, :2]
    halves = half_widths(outcomes)
    assert halves[0, 1] < halves[0, 2] / 2
    outcomes[1] = outcomes[0]
    assert half_widths(outcomes)[0, 1] >= widest(3, 199) / np.sqrt(2) / 200


# ---- its words -----------------------------------------------------------------------------------------------------


def scores(outcomes: NDArray[np.float64]) -> dict[str, list[float]]:
    return {f"m{i}": row for i, row in enumerate(outcomes.mean(axis=2).tolist())}


def test_a_lead_that_few_samples_carry_is_not_shown_although_every_seed_has_it() -> None:
    """51 samples, three more right in every seed: seeds alone would call it shown."""
    right = np.zeros((2, 3, 51))
    right[0, :, :25], right[1, :, 3:25] = 1, 1
    right[0, 0, 30] = right[1, 1, 40] = 1
    alone, both = (tell_apart("species", scores(100 * right), outcomes=one) for one in (None, 100 * right))
    assert alone.ahead
    assert not both.ahead
    assert both.text().startswith("species: no difference shown at the top. m0 is not shown to differ from m1 (5.9 ± ")
    assert both.text().endswith("(± in points, from 3 seeds and 51 test samples)")


def test_with_one_seed_only_samples_are_counted_and_it_says_so() -> None:
    outcomes, _ = drawn(np.random.default_rng(0), 2, 1, 3000)
    outcomes[1, 0, :1500] = 1
    found = tell_apart("here", scores(outcomes), outcomes=outcomes)
    assert found.best == "m1"
    assert found.ahead.keys() == {"m0"}
    assert "from 3,000 test samples alone: what another seed would give is not counted)" in found.text()


def test_one_seed_without_answers_or_a_single_sample_shows_nothing() -> None:
    for outcomes in (None, np.ones((2, 1, 1))):
        assert "no spread, nothing shown" in tell_apart("here", {"a": [1.0], "b": [0.5]}, outcomes=outcomes).text()


# ---- answers that a run keeps ----------------------------------------------------------------------------------------


def outcomes(n: int = 40, *, seed: int = 0) -> Outcomes:
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.integers(0, 5, n), rng.integers(0, 2, n)], axis=1)
    labels[rng.random(n) < 0.3, 0] = -1
    return Outcomes(labels, np.where(rng.random((n, 2)) < 0.6, abs(labels), rng.integers(0, 2, (n, 2))))


@pytest.mark.parametrize("name", ["accuracy", "mean_class_recall", "macro_precision", "macro_f1"])
def test_values_of_samples_average_to_the_figure_and_are_its_slopes(name: str) -> None:
    kept, spec = outcomes(), REGISTER[name]
    values = kept.values(spec, 0)
    assert values is not None
    known = np.flatnonzero(kept.labels[:, 0] >= 0)
    assert len(values) == len(known)

    def figure(weights: NDArray[np.float64]) -> float:
        assert spec.by is not None
        return float(spec.by(kept._counts(0, torch.from_numpy(weights))))

    whole = np.ones(len(kept.labels))
    assert values.mean() == pytest.approx(figure(whole))
    for place, i in enumerate(known):
        more = whole.copy()
        more[i] += 1e-6
        assert values[place] - values.mean() == pytest.approx(len(known) * (figure(more) - figure(whole)) / 1e-6, abs=1e-3)


def test_values_of_an_accuracy_are_right_and_wrong_and_a_sample_counts_once_over_levels() -> None:
    kept = outcomes()
    known = kept.labels[:, 0] >= 0
    right = kept.labels == kept.chosen
    np.testing.assert_allclose(kept.values(REGISTER["accuracy"], 0), right[known, 0])
    both = kept.values(REGISTER["mean_accuracy"], None)
    assert both is not None
    n, m = len(known), known.sum()
    fine, coarse = right[known, 0].mean(), right[:, 1].mean()
    naive = (fine + coarse) / 2 + (n / m * known * (right[:, 0] - fine) + right[:, 1] - coarse) / 2
    np.testing.assert_allclose(both, naive)


def test_metrics_that_need_probabilities_have_no_values_of_samples() -> None:
    assert outcomes().values(REGISTER["ece"], 0) is None
    assert outcomes().values(REGISTER["mistake_severity"], None) is None
    assert Outcomes(np.full((3, 1), -1), np.zeros((3, 1), dtype=int)).values(REGISTER["accuracy"], 0) is None


def test_answers_are_kept_in_the_order_of_samples_and_read_again(tmp_path: Path) -> None:
    record = Recorder(["crm"])
    for rows in ([2, 3], [0, 1]):
        labels = torch.tensor(rows).unsqueeze(1)
        record.update(rows, labels, [labels + 10, labels + 20000])
    assert Recorder().outcomes() is None  # no test samples
    found = record.outcomes()
    assert found is not None
    found.write(tmp_path)
    for rule, more in (("", 10), ("crm", 20000)):
        kept = Outcomes.read(tmp_path, rule)
        assert kept is not None
        assert kept.labels.dtype == np.int16
        assert kept.labels.tolist() == [[0], [1], [2], [3]]
        assert (kept.chosen - kept.labels == more).all()
    assert Outcomes.read(tmp_path, "path") is None
    assert Outcomes.read(tmp_path / "none") is None


def test_damaged_answers_are_told(tmp_path: Path) -> None:
    outcomes().write(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    for broken in (b"", b"x", whole[:100], whole[:-40]):
        (tmp_path / FILE).write_bytes(broken)
        with pytest.raises(RunError, match=f"{FILE}: damaged"):
            Outcomes.read(tmp_path)
    np.savez(tmp_path / FILE, labels=np.zeros((2, 2), dtype=int), chosen=np.zeros((3, 2)))
    with pytest.raises(RunError, match="not the answers of a run"):
        Outcomes.read(tmp_path)


# ---- comparisons -----------------------------------------------------------------------------------------------------


def compared(folder: Path, *, masks: tuple[float, ...] = (0.9,), keep: bool = True, other: bool = False) -> Comparison:
    """Two methods, two seeds, two levels; 60 samples of which 40 have a species."""
    rng, rows = np.random.default_rng(1), []
    labels = np.stack([rng.integers(0, 4, 60), rng.integers(0, 2, 60)], axis=1)
    labels[40:, 0] = -1
    for method, skill in (("lht", 0.7), ("flat", 0.6)):
        for mask in masks:
            for seed in range(2):
                truth = 1 - labels if other and method == "flat" else labels
                kept = Outcomes(truth, np.where(rng.random((60, 2)) < skill, truth, (truth + 1) % 4))
                fine, coarse = ((kept.chosen == truth)[truth[:, k] >= 0, k].mean() for k in (0, 1))
                levels = [
                    {"name": "order", "samples": 60, "accuracy": coarse},
                    {"name": "species", "samples": 40, "accuracy": fine},
                ]
                rows.append((method, mask, seed, {"levels": levels, "mean_accuracy": (fine + coarse) / 2}))
                if keep:
                    run = folder / "runs" / run_name(method, mask, seed)
                    run.mkdir(parents=True)
                    kept.write(run)
    return write_results(folder, rows)


def test_a_comparison_counts_the_samples_with_a_label_and_names_their_number_everywhere(tmp_path: Path) -> None:
    results = compared(tmp_path, masks=(0.5, 0.9))
    assert [verdict.samples for verdict in verdicts(results)] == [40, 40, 40, 60, 60, 60]
    text = document(results)
    assert text.startswith("| masked | method | order (n = 60) | species (n = 40) | mACC |")
    assert "from 2 seeds and 40 test samples)" in text
    assert "have kept no answers" not in text


def test_over_all_masks_a_sample_counts_once(tmp_path: Path) -> None:
    results = compared(tmp_path, masks=(0.5, 0.9))
    runs = {(m, mask, s): results.outcomes(m, mask, s) for m in results.methods for mask in results.masks for s in (0, 1)}
    right = {key: 100 * (run.labels == run.chosen)[:40, 0] for key, run in runs.items() if run}
    table = np.array([[(right[m, 0.5, s] + right[m, 0.9, s]) / 2 for s in (0, 1)] for m in ("lht", "flat")])
    [whole] = [verdict for verdict in verdicts(results) if verdict.where == "all masks, species"]
    assert list(whole.half.values()) == pytest.approx([half_widths(table)[0, 1]])


@pytest.mark.parametrize("how", [{"keep": False}, {"other": True}], ids=["no answers", "other samples"])
def test_a_comparison_without_the_same_samples_everywhere_counts_seeds_alone_and_says_so(
    tmp_path: Path, how: dict[str, bool]
) -> None:
    results = compared(tmp_path, **how)
    assert {verdict.samples for verdict in verdicts(results)} == {None}
    text = document(results)
    assert "from 2 seeds alone: which test samples there are is not counted)" in text
    assert "have kept no answers" in text


def test_the_figure_names_the_number_of_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    titles: list[str] = []
    monkeypatch.setattr(Axes, "set_title", lambda self, label, **_: titles.append(label))
    draw_accuracy(compared(tmp_path), tmp_path / "accuracy.png")
    assert titles == ["order (n = 60)", "species (n = 40)"]
