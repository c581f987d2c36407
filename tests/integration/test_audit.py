"""`lht audit` on pictures: a folder, a table and shards, from the first look to training; and the page in a browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from torchlht import read_data
from torchlht.cli import main
from torchlht.files import read_csv

SPECIES = {
    "Ivory Gull": ("Gulls", (235, 235, 225)),
    "Herring Gull": ("Gulls", (175, 190, 235)),
    "Puffin": ("Auks", (235, 95, 30)),
    "<b>Razorbill<i>": ("Auks", (150, 30, 20)),
}
EACH = 14
SEEN = ["--backbone", "small", "--quiet"]
TRAINED = ["--backbone", "small", "--freeze", "--image-size", "16", "--epochs", "1", "--workers", "0", "--no-track", "--quiet"]


def photograph(colour: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    """A patch of a colour before something grey."""
    grey = rng.normal(110, 12, (24, 24, 1)) + rng.normal(0, 8, (24, 24, 3))
    grey[4:20, 4:20] = np.array(colour) + rng.normal(0, 14, (16, 16, 3))
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8))


def draw(root: Path) -> dict[str, list[str]]:
    """Pictures named by number in a folder; the names by class."""
    rng, found = np.random.default_rng(0), {}
    root.mkdir()
    for n, (name, (_, colour)) in enumerate(SPECIES.items()):
        found[name] = [f"{n}-{j:02d}.png" for j in range(EACH)]
        for file in found[name]:
            photograph(colour, rng).save(root / file)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in family/species, one puffin among the ivory gulls."""
    pictures, root = tmp_path_factory.mktemp("drawn") / "all", tmp_path_factory.mktemp("folder") / "birds"
    for name, files in draw(pictures).items():
        place = root / SPECIES[name][0] / name
        place.mkdir(parents=True)
        for file in files:
            shutil.copy(pictures / file, place / file)
    shutil.move(root / "Auks/Puffin/2-05.png", root / "Gulls/Ivory Gull/2-05.png")
    return root


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The same as a table, every fifth picture for testing; a razorbill of the training part is in the test part, too."""
    rows = ["path,family,species,split"]
    for name, files in draw(tmp_path / "pictures").items():
        wrong = {"2-05.png": ("Gulls", "Ivory Gull")}
        for j, file in enumerate(files):
            family, said = wrong.get(file, (SPECIES[name][0], name))
            rows.append(f"pictures/{file},{family},{said},{'test' if j % 5 == 4 else 'train'}")
    shutil.copy(tmp_path / "pictures/3-00.png", tmp_path / "pictures/again.png")
    rows.append("pictures/again.png,Auks,<b>Razorbill<i>,test")
    (tmp_path / "birds.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "birds.csv"


def test_a_folder_from_the_first_look_to_training(folder: Path, tmp_path: Path, capsys: Any) -> None:
    found, levels = tmp_path / "found", ["--levels", "family,species"]
    main(["audit", str(folder), "--out", str(found), *levels, *SEEN])
    first = read_csv(found / "labels.csv")[0]
    assert (first["sample"], first["level"], first["given"]) == ("Gulls/Ivory Gull/2-05.png", "family", "Gulls")
    assert first["suggested"] in ("Puffin", "Auks")
    main(["audit", "apply", str(found)])
    old, new = read_data(folder, levels=["family", "species"]), read_data(found / "corrected.csv")
    changed = {Path(key).name for key in new.keys if "2-05" in key}
    assert changed == {"2-05.png"}
    assert len(new) == len(old)
    at = next(i for i, key in enumerate(new.keys) if "2-05" in key)
    assert new.hierarchy.classes[1][new.labels[at, 1]] == "Auks"
    assert (folder / "Gulls/Ivory Gull/2-05.png").is_file()  # the original stays
    main(["train", str(found / "corrected.csv"), "--out", str(tmp_path / "new"), *TRAINED])
    capsys.readouterr()
    options = [word for word in TRAINED if word != "--quiet"]
    main(["train", str(folder), *levels, "--audit", str(found), "--test-share", "0", "--out", str(tmp_path / "old"), *options])
    said = capsys.readouterr()
    assert f"labels of {len(read_csv(found / 'labels.csv'))} training samples are probably wrong" in said.out + said.err


def test_a_table_with_a_leak_and_training_that_judges_by_itself(table: Path, tmp_path: Path, capsys: Any) -> None:
    main(["audit", str(table), "--out", str(tmp_path / "found"), *SEEN])
    pairs = read_csv(tmp_path / "found/twins.csv")
    assert [Path(pairs[0][side]).name for side in ("sample", "twin")] == ["3-00.png", "again.png"]
    assert "a leak" in pairs[0]["reason"]
    capsys.readouterr()
    options = [word for word in TRAINED if word != "--quiet"]
    main(["train", str(table), "--audit", "auto", "--out", str(tmp_path / "run"), *options])
    said = capsys.readouterr()
    assert "training samples are probably wrong" in said.out + said.err
    assert (tmp_path / "run/metrics.json").is_file()


def test_shards_are_audited_and_trained_on_but_not_rewritten(folder: Path, tmp_path: Path, capsys: Any) -> None:
    shards, found = tmp_path / "shards", tmp_path / "found"
    main(["data", "pack", str(folder), "--out", str(shards), "--per-shard", "20", "--levels", "family,species"])
    main(["audit", str(shards), "--out", str(found), *SEEN])
    assert "2-05" in read_csv(found / "labels.csv")[0]["sample"]
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["audit", "apply", str(found)])
    assert stop.value.code == 2
    assert "pictures in shards cannot be named by a table" in " ".join(capsys.readouterr().err.split())
    main(["train", str(shards), "--audit", str(found), "--out", str(tmp_path / "run"), *TRAINED])
    assert (tmp_path / "run/metrics.json").is_file()


def test_the_page_opens_shows_names_as_they_are_and_has_two_looks(table: Path, tmp_path: Path, browser: Any) -> None:
    main(["audit", str(table), "--out", str(tmp_path / "found"), "--all", *SEEN])
    text = (tmp_path / "found/audit.html").read_text()
    assert "<b>Razorbill" not in text
    assert "&lt;b&gt;Razorbill" in text
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto((tmp_path / "found/audit.html").as_uri())
    assert page.locator(".doubt").count() == 40
    assert page.locator(".doubt img").first.evaluate("image => image.naturalWidth") > 0
    assert page.get_by_text("<b>Razorbill<i>").first.is_visible()
    light = page.evaluate("getComputedStyle(document.body).color")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).color") != light
    row = next(row for row in read_csv(tmp_path / "found/labels.csv") if "2-05" in row["sample"] and row["level"] == "species")
    assert "family Gulls fits" not in row["reason"]
    assert errors == []
    page.close()
