"""`lht reproduce hmc` on a made-up archive."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dags import write_genes
from torchlht.cli import main
from torchlht.lab.hmc import SETS, options_of
from torchlht.lab.options import ReproduceArgs


def test_it_trains_what_is_missing_and_compares_with_the_published_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    write_genes(root, 40)
    for part in ("train", "test"):
        (root / f"genes.{part}.arff").rename(root / f"derisi_FUN.{part}.arff")
    words = ["reproduce", "hmc", "--root", str(root), "--out", str(out), "--epochs", "1"]
    main([*words, "--parts", "published-0"])
    first = (out / "results.csv").read_text().splitlines()
    assert len(first) == 2
    assert first[1].startswith("derisi_FUN,published,0.0,0,")
    stamp = (out / "runs" / "published-0-derisi_FUN-s0" / "metrics.json").stat().st_mtime_ns
    main(words)
    assert (out / "runs" / "published-0-derisi_FUN-s0" / "metrics.json").stat().st_mtime_ns == stamp
    rows = (out / "results.csv").read_text().splitlines()
    assert [row.split(",")[1:3] for row in rows[1:]] == [
        [arm, mask] for mask in ("0.0", "0.5") for arm in ("published", "ours")
    ]
    assert "| derisi_FUN | 0.195 |" in (out / "table.md").read_text()
    assert "lht minus c-hmcnn" in capsys.readouterr().out


def test_without_files_it_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (([], "--root"), (["--root", str(tmp_path)], "holds none of the sets")):
        with pytest.raises(SystemExit):
            main(["reproduce", "hmc", *words])
        assert said in capsys.readouterr().err


def test_a_zip_is_unpacked_once_and_a_broken_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_genes(tmp_path, 40)
    packed, out = tmp_path / "hmc.zip", tmp_path / "out"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        for part in ("train", "test"):
            archive.write(tmp_path / f"genes.{part}.arff", f"datasets/derisi_FUN/derisi_FUN.{part}.arff")
    words = ["reproduce", "hmc", "--root", str(packed), "--out", str(out), "--epochs", "1", "--parts", "published-0"]
    main(words)
    assert len((out / "results.csv").read_text().splitlines()) == 2
    stamp = (out / "sets" / "derisi_FUN.train.arff").stat().st_mtime_ns
    main(words)
    assert (out / "sets" / "derisi_FUN.train.arff").stat().st_mtime_ns == stamp
    packed.write_bytes(packed.read_bytes()[:-40])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*words[:-4], "--out", str(tmp_path / "other")])
    assert "hmc.zip: cannot be unpacked" in capsys.readouterr().err


def test_full_scale_has_the_published_settings() -> None:
    args = ReproduceArgs("hmc", scale="full")
    found = options_of(args, SETS[10], Path("seq_GO.train.arff"), "published", 0.0, 3, Path("x"))
    assert (found.batch_size, found.lr, found.epochs, found.weight_decay, found.val) == (4, 1e-4, 45, 1e-5, 0.0)
    assert found.option == ("width=9000", "dropout=0.7")
    assert found.method == "c-hmcnn"
    assert found.seed == 3


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for pattern, listed in (("hmc", True), ("*", True), ("cub-main", False)):
        main(["reproduce", "list", pattern])
        assert ("ARFF files" in capsys.readouterr().out) is listed
