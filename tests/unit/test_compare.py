"""What a comparison says: tables, paired differences, and when it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlht.args import CompareArgs
from torchlht.compare import cells, markdown, read_results, sentences, spread, verdict
from torchlht.errors import ConfigError


def write(folder: Path, scores: dict[str, list[float]]) -> Path:
    lines = ["method,mask,seed,level,accuracy,mean_accuracy,inconsistency,train_seconds"]
    for method, values in scores.items():
        for seed, value in enumerate(values):
            for level, accuracy in (("order", 0.9), ("species", value)):
                lines.append(f"{method},0.9,{seed},{level},{accuracy},{(0.9 + value) / 2},0.1,3")
    (folder / "results.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_paired_difference_beyond_seed_noise_is_shown_although_the_spreads_overlap() -> None:
    """Both methods move together from seed to seed; the paired difference is steady."""
    assert verdict("lht", [50, 40, 45], "flat", [48.1, 38, 42.9], "species") == (
        "lht is ahead of flat by 2.0 ± 0.2 points at species (3 seeds, paired): shown."
    )


def test_a_difference_within_seed_noise_is_not_shown() -> None:
    assert "differ by 2.0 ± 17.9 points at species (3 seeds, paired): no difference shown" in verdict(
        "lht", [50, 40, 45], "flat", [40, 44, 45], "species"
    )


def test_one_seed_shows_nothing() -> None:
    assert verdict("lht", [50], "flat", [10], "species").endswith("no spread, nothing shown.")


def test_results_are_tabled_by_mask_and_method_with_spread(tmp_path: Path) -> None:
    results = read_results(write(tmp_path, {"flat": [0.3, 0.31, 0.32], "lht": [0.5, 0.52, 0.51]}))
    assert results.levels == ["order", "species", "mACC"]
    assert markdown(results).splitlines() == [
        "| masked | method | order | species | mACC |",
        "| --- | --- | --- | --- | --- |",
        "| 90% | flat | 90.0 ± 0.0 | 31.0 ± 1.0 | 60.5 ± 0.5 |",
        "| 90% | lht | 90.0 ± 0.0 | 51.0 ± 1.0 | 70.5 ± 0.5 |",
    ]
    assert sentences(results) == ["90% masked: lht is ahead of flat by 20.0 ± 2.5 points at species (3 seeds, paired): shown."]
    assert spread([3.0]) == "3.0"


def test_the_grid_has_every_method_mask_and_seed_once_and_shares_everything_else(tmp_path: Path) -> None:
    grid = cells(CompareArgs("x.npz", tmp_path, methods="flat,lht", mask="0,0.9", seeds=2))
    assert len({cell.run.path for cell in grid}) == len(grid) == 8
    for cell in grid:
        twins = [other.args.make_mask() for other in grid if (other.mask, other.seed) == (cell.mask, cell.seed)]
        assert all(mask == cell.args.make_mask() for mask in twins)


@pytest.mark.parametrize(("mask", "told"), [("0,x", "numbers from 0 to 1"), ("2", "--mask is 2.0")])
def test_wrong_masks_are_told(tmp_path: Path, mask: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CompareArgs("x.npz", tmp_path, mask=mask)
