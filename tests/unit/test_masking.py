"""Masks: how many labels are kept, which, and what a mask must leave alone."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlht.data.samples import Mask, Samples
from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy

CUB_SIZES = [30] * 194 + [29] * 6


def make(sizes: list[int], depth: int = 3) -> Samples:
    """A class per size, pairs of classes under a family, pairs of families under an order; everything is labelled."""
    leaves = np.arange(len(sizes))
    paths = [[f"o{i // 4}", f"f{i // 2}", f"s{i}"][3 - depth :] for i in leaves]
    tree = Hierarchy.from_paths(paths, ["order", "family", "species"][3 - depth :])
    fine = np.repeat(leaves, sizes)
    labels = np.full((len(fine), depth), -1)
    labels[:, 0] = fine
    keys = tuple(f"{tree.classes[0][c]}/{i}.jpg" for i, c in enumerate(fine))
    return Samples("made up", tree, keys, tree.fill(labels), np.full(len(fine), "train"))


def kept_keys(samples: Samples, mask: Mask) -> set[str]:
    return {samples.keys[i] for i in mask.apply(samples)[1]}


# ---- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "rounding", "kept"),
    [
        (0.9, "lht", 794),
        (0.9, "hrn", 600),
        (0.9, "nominal", 600),
        (0.7, "lht", 1994),
        (0.7, "hrn", 1800),
        (0.5, "lht", 3194),
        (0.5, "hrn", 3000),
        (0.3, "lht", 4394),
        (0.3, "hrn", 4200),
        (0.8, "lht", 1394),
        (0.8, "hrn", 1200),
    ],
)
def test_the_counts_on_cub_are_those_of_the_published_code(ratio: float, rounding: str, kept: int) -> None:
    mask = Mask(ratio=ratio, rounding=rounding)  # type: ignore[arg-type]
    assert sum(mask.kept_of(n) for n in CUB_SIZES) == kept


def test_applying_to_data_of_cubs_size_keeps_as_many() -> None:
    samples = make(CUB_SIZES)
    masked, kept = Mask(ratio=0.9, rounding="lht").apply(samples)
    assert len(kept) == 794
    assert (masked.labels[:, 0] >= 0).sum() == 794
    assert np.flatnonzero(masked.labels[:, 0] >= 0).tolist() == kept.tolist()


@given(st.integers(1, 400), st.integers(0, 100), st.sampled_from(["nominal", "lht", "hrn"]), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_counts_are_exact_in_decimals(n: int, percent: int, rounding: str, minimum: int) -> None:
    exact = n * Fraction(100 - percent, 100)
    expected = {
        "nominal": int(exact + Fraction(1, 2)),
        "lht": int(exact) + 1,
        "hrn": ceil(exact),
    }[rounding]
    mask = Mask(ratio=percent / 100, rounding=rounding, minimum=minimum)  # type: ignore[arg-type]
    assert mask.kept_of(n) == (n if percent == 0 else min(max(expected, minimum), n))


@pytest.mark.parametrize(
    ("n", "ratio", "rounding", "kept"),
    [
        (30, 0.9, "lht", 4),  # 30 * (1 - 0.9) is 2.9999999999999996
        (10, 0.9, "lht", 2),  # 10 * (1 - 0.9) is 0.9999999999999998
        (10, 0.7, "hrn", 3),  # 10 * (1 - 0.7) is 3.0000000000000004
        (100, 0.71, "hrn", 29),  # 100 * (1 - 0.71) is 29.000000000000004
        (100, 0.43, "hrn", 57),  # 100 * (1 - 0.43) is 57.00000000000001
        (50, 0.99, "nominal", 1),  # half a sample is rounded up
        (25, 0.9, "nominal", 3),  # and so is two and a half
    ],
)
def test_binary_rounding_does_not_bite(n: int, ratio: float, rounding: str, kept: int) -> None:
    assert Mask(ratio=ratio, rounding=rounding).kept_of(n) == kept  # type: ignore[arg-type]


@pytest.mark.parametrize("rounding", ["nominal", "lht", "hrn"])
def test_a_ratio_of_zero_hides_nothing(rounding: str) -> None:
    samples = make([3, 1, 5, 2])
    masked, kept = Mask(ratio=0.0, rounding=rounding).apply(samples)  # type: ignore[arg-type]
    assert masked.labels.tolist() == samples.labels.tolist()
    assert kept.tolist() == list(range(11))


@pytest.mark.parametrize("rounding", ["nominal", "lht", "hrn"])
def test_one_label_of_every_class_is_kept_even_when_all_are_to_be_hidden(rounding: str) -> None:
    samples = make([3, 1, 5, 2])
    masked, kept = Mask(ratio=1.0, rounding=rounding).apply(samples)  # type: ignore[arg-type]
    assert sorted(masked.labels[kept, 0].tolist()) == [0, 1, 2, 3]
    assert len(kept) == 4


@pytest.mark.parametrize("rounding", ["nominal", "hrn"])
def test_a_minimum_of_zero_keeps_none_when_all_are_to_be_hidden(rounding: str) -> None:
    samples = make([3, 1, 5, 2])
    masked, kept = Mask(ratio=1.0, rounding=rounding, minimum=0).apply(samples)  # type: ignore[arg-type]
    assert len(kept) == 0
    assert (masked.labels[:, 0] == -1).all()
    assert masked.labels[:, 1:].tolist() == samples.labels[:, 1:].tolist()


def test_a_minimum_of_three_keeps_three_or_all_there_are() -> None:
    masked, _ = Mask(ratio=0.9, minimum=3).apply(make([10, 2, 40, 3]))
    assert np.bincount(masked.labels[masked.labels[:, 0] >= 0, 0]).tolist() == [3, 2, 4, 3]


# ---- which ---------------------------------------------------------------------------------------------------------


def test_every_class_keeps_its_own_share() -> None:
    sizes = [20, 40, 60, 10]
    masked, kept = Mask(ratio=0.5).apply(make(sizes))
    assert np.bincount(masked.labels[kept, 0]).tolist() == [10, 20, 30, 5]


@given(st.permutations(range(24)), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_same_samples_are_kept_whatever_their_order(order: list[int], seed: int) -> None:
    samples = make([6, 6, 6, 6])
    mask = Mask(ratio=0.5, seed=seed)
    assert kept_keys(samples.select(np.array(order)), mask) == kept_keys(samples, mask)


def test_the_same_samples_are_kept_however_classes_are_numbered() -> None:
    samples = make([6, 7, 8, 9], depth=2)
    tree = samples.hierarchy
    turned = Hierarchy(
        levels=tree.levels,
        classes=(tree.classes[0][::-1], tree.classes[1]),
        parents=(tree.parents[0][::-1],),
    )
    labels = samples.labels.copy()
    labels[:, 0] = 3 - labels[:, 0]
    renumbered = dataclasses.replace(samples, hierarchy=turned, labels=turned.fill(labels))
    for seed in range(5):
        assert kept_keys(renumbered, Mask(ratio=0.5, seed=seed)) == kept_keys(samples, Mask(ratio=0.5, seed=seed))


def test_the_same_samples_are_kept_when_other_classes_are_not_there() -> None:
    samples = make([8, 8, 8, 8])
    half = samples.select(np.arange(16))
    mask = Mask(ratio=0.5, seed=3)
    assert kept_keys(half, mask) == kept_keys(samples, mask) & set(half.keys)


def test_the_choice_depends_on_the_seed_and_on_nothing_else() -> None:
    samples = make([20] * 4)
    choices = [frozenset(kept_keys(samples, Mask(ratio=0.5, seed=seed))) for seed in range(6)]
    assert len(set(choices)) == 6
    assert kept_keys(samples, Mask(ratio=0.5, seed=0)) == choices[0]


def test_every_sample_has_about_the_same_chance() -> None:
    samples = make([10, 10, 10, 10])
    counts = np.zeros(40)
    for seed in range(200):
        counts[Mask(ratio=0.5, seed=seed).apply(samples)[1]] += 1
    assert counts.min() > 60, "200 draws of a half: far from 100 is a fault of the drawing"
    assert counts.max() < 140


def test_more_masking_keeps_a_part_of_what_less_masking_keeps() -> None:
    samples = make([30] * 8)
    kept = [kept_keys(samples, Mask(ratio=ratio, seed=1)) for ratio in (0.1, 0.5, 0.9)]
    assert kept[2] < kept[1] < kept[0]


# ---- what is left alone --------------------------------------------------------------------------------------------


def test_two_levels_are_hidden_on_the_same_samples_and_coarser_ones_stay() -> None:
    samples = make([10] * 8)
    one, kept_one = Mask(ratio=0.7, levels=1, seed=2).apply(samples)
    two, kept_two = Mask(ratio=0.7, levels=2, seed=2).apply(samples)
    assert kept_one.tolist() == kept_two.tolist()
    hidden = np.setdiff1d(np.arange(len(samples)), kept_one)
    assert (one.labels[hidden, 0] == -1).all()
    assert one.labels[:, 1:].tolist() == samples.labels[:, 1:].tolist()
    assert (two.labels[hidden, :2] == -1).all()
    assert two.labels[:, 2].tolist() == samples.labels[:, 2].tolist()
    assert two.labels[kept_two].tolist() == samples.labels[kept_two].tolist()


def test_val_and_test_samples_are_untouched() -> None:
    samples = make([12] * 4)
    split = np.array(["train", "val", "test"] * 16)
    samples = dataclasses.replace(samples, split=split)
    masked, kept = Mask(ratio=0.5).apply(samples)
    assert masked.labels[split != "train"].tolist() == samples.labels[split != "train"].tolist()
    assert set(split[kept]) == {"train"}
    assert len(kept) == 8, "half of the four training samples of each class"


def test_samples_without_a_fine_label_stay_as_they_are_and_are_not_counted() -> None:
    samples = make([10] * 4)
    labels = samples.labels.copy()
    labels[0:6, 0] = -1
    labels[10:13] = -1
    labels[20:22, :2] = -1
    samples = dataclasses.replace(samples, labels=labels)
    coarse = np.flatnonzero(labels[:, 0] < 0)
    masked, kept = Mask(ratio=0.5, levels=2).apply(samples)
    assert masked.labels[coarse].tolist() == labels[coarse].tolist()
    assert not set(kept.tolist()) & set(coarse.tolist())
    assert np.bincount(masked.labels[kept, 0]).tolist() == [2, 4, 4, 5]


def test_masking_leaves_the_given_samples_alone_and_everything_but_labels_the_same() -> None:
    samples = make([10] * 4)
    before = samples.labels.copy()
    masked, _ = Mask(ratio=0.9).apply(samples)
    assert samples.labels.tolist() == before.tolist()
    assert masked.labels.tolist() != before.tolist()
    assert masked.keys == samples.keys
    assert masked.hierarchy is samples.hierarchy
    assert masked.split.tolist() == samples.split.tolist()


# ---- refusing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.5, -0.1, float("nan")])
def test_a_ratio_outside_0_to_1_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match=rf"mask is {ratio}: .* from 0 to 1"):
        Mask(ratio=ratio)


def test_hiding_no_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="mask_levels is 0"):
        Mask(ratio=0.5, levels=0)


def test_a_negative_minimum_is_refused() -> None:
    with pytest.raises(ConfigError, match="mask_minimum is -1"):
        Mask(ratio=0.5, minimum=-1)


@pytest.mark.parametrize(("levels", "depth"), [(3, 3), (4, 3), (2, 2), (1, 1)])
def test_hiding_the_coarsest_level_too_is_refused(levels: int, depth: int) -> None:
    with pytest.raises(ConfigError, match=f"mask_levels={levels} would hide everything: made up has {depth} levels"):
        Mask(ratio=0.5, levels=levels).apply(make([4, 4, 4, 4], depth=depth))


def test_without_masking_any_number_of_levels_is_fine() -> None:
    samples = make([4, 4], depth=1)
    assert Mask(ratio=0.0).apply(samples)[0].labels.tolist() == samples.labels.tolist()
