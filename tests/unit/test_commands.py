"""What `lht methods` says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchlht.cli import main
from torchlht.heads.method import find_method, list_methods, options_of


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.console.out._width", 400)


def test_every_method_is_listed_with_a_line_its_origin_and_its_size_on_the_birds_tree(wide: None, capsys) -> None:
    main(["methods"])
    said = capsys.readouterr().out
    rows = {cells[1].strip(): cells for line in said.splitlines() if len(cells := line.split("│")) == 6}
    for name in list_methods():
        assert find_method(name).summary in rows[name][2]
        assert re.search(r"\d\.\d\d M", rows[name][4])
    assert "= lht-naive" in said
    assert "parameters for order 13 › family 38 › species 200 on 2048 features" in said
    sizes = {name: float(rows[name][4].strip(" M")) for name in list_methods()}
    assert sizes["flat"] == sizes["marginal"] < sizes["multihead"] < sizes["lht"] < sizes["hrn"] < sizes["lht-full"]
    # BatchNorm 2048, Linear 2048 → 600, BatchNorm 600, and the classifier of 200
    assert sizes["flat"] == round((2 * 2048 + 2049 * 600 + 2 * 600 + 601 * 200) / 1e6, 2)


def test_one_method_is_shown_with_its_options_and_what_is_tuned(capsys) -> None:
    main(["methods", "hxe"])
    said = capsys.readouterr().out
    assert "from: Bertinetto et al., Making Better Mistakes, CVPR 2020" in said
    assert "alpha=0.1   (--tune tries 0.1, 0.4)\n      how fast the weight of a step falls with its depth" in said
    main(["methods", "lht-naive"])
    assert capsys.readouterr().out.startswith("lht-naive: Fine classes first")
    main(["methods", "hd-cnn"])
    assert "a variant with features=split" in capsys.readouterr().out


def test_sizes_are_for_the_tree_and_width_that_are_asked(tmp_path: Path, capsys) -> None:
    (tmp_path / "tree.csv").write_text("family,species\nF,s\nF,t\nH,v\n")
    main(["methods", "logistic", "--hierarchy", str(tmp_path / "tree.csv"), "--in-features", "100000"])
    assert "parameters: 0.50 M for family 2 › species 3 on 100000 features" in capsys.readouterr().out


def test_an_unknown_method_is_told(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["methods", "lth"])
    assert stop.value.code == 2
    assert "unknown method 'lth': did you mean lht" in capsys.readouterr().err


@pytest.mark.parametrize("name", list_methods())
def test_every_option_of_every_method_is_explained(name: str) -> None:
    assert [option.name for option in options_of(name).values() if not option.meaning] == []
