"""Finding a class by a few letters: page/search.js, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

NODE = shutil.which("node")
SCRIPT = """
import { Names } from %s;
const { names, synonyms, asked } = JSON.parse(process.argv[2]), index = new Names();
for (const name of names) index.add(name);
for (const [name, node] of synonyms) index.add(name, node);
console.log(JSON.stringify(asked.map((letters) => index.find(letters).map((node) => names[node]))));
"""
NAMES = ["Larus", "Larus argentatus", "Larus canus", "Lagopus arcticus", "Sterna hirundo", "Laridae", "Élanus scriptus"]


def found(tmp_path: Path, *asked: str, synonyms: tuple[tuple[str, int], ...] = ()) -> list[list[str]]:
    if NODE is None:
        pytest.skip("no node to run the page's script with: install the Debian package nodejs")
    shutil.copy(str(files("torchlht.serve.label") / "page" / "search.js"), tmp_path / "search.mjs")
    (tmp_path / "run.mjs").write_text(SCRIPT % json.dumps(str(tmp_path / "search.mjs")))
    said = json.dumps({"names": NAMES, "synonyms": synonyms, "asked": asked})
    done = subprocess.run([NODE, str(tmp_path / "run.mjs"), said], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_letters_begin_words_and_one_may_be_wrong(tmp_path: Path) -> None:
    ways = ["laar", "la ar", "argen", "larar", "ela", "latus", "sterma"]
    firsts = [some[0] for some in found(tmp_path, *ways)]
    assert firsts[0] in ("Larus argentatus", "Lagopus arcticus")
    assert firsts[2:] == ["Larus argentatus", "Larus argentatus", "Élanus scriptus", "Larus", "Sterna hirundo"]


def test_names_of_which_every_word_is_begun_come_first(tmp_path: Path) -> None:
    (some,) = found(tmp_path, "lar")
    assert set(some[:4]) == {"Larus", "Laridae", "Lagopus arcticus", "Larus argentatus"}  # l and ar
    assert some[4:] == ["Larus canus"]


def test_a_class_is_found_by_its_synonyms_once(tmp_path: Path) -> None:
    names = (("Herring Gull", 1), ("Silver Larus gull", 1))
    assert found(tmp_path, "hegu", "silv", "larus ar", synonyms=names) == [["Larus argentatus"]] * 3
