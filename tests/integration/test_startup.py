"""What is imported when: a mistake is answered without torch, and the library takes no more than it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HEAVY = ["timm", "torchvision", "lightning_fabric", "torchmetrics", "torch._dynamo", "torch._inductor", "huggingface_hub"]
SLOW = [*HEAVY, "scipy", "matplotlib", "sklearn"]
ASK = """
import contextlib, io, json, sys
from torchlht.cli import main

found = {}
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(words.split())
        except SystemExit:
            pass
    found[words] = [said.getvalue(), "torch" in sys.modules]
print(json.dumps(found))
"""
WRONG = {
    "--help": "",
    "train --help": "",
    "train nosuch": "nosuch: no such file or folder, and not a dataset known by name (known: demo, cub,",
    "train demo --mask 2": "--mask is 2.0: it must be a share from 0 to 1",
    "train nosuch --method nope": "unknown method 'nope': known: ",
    "train nosuch --method lth": "unknown method 'lth': did you mean lht? (known: ",
    "train demo --option nope=1": "method lht has no option 'nope': known: features,",
    "train demo --epcohs 3": "unknown option --epcohs: did you mean --epochs?",
    "train demo --gama 3": "unknown option --gama: did you mean --gamma?",
    "train demo --hierarchy no.csv": "no.csv: no such file or folder",
    "train demo --prior no.csv": "no.csv: no such file or folder",
    "train --resume nosuch": "nosuch: no such run directory",
    "predict nosuch x.jpg": "nosuch: no such run directory",
    "predict run x.jpg": "x.jpg: no such file, and nothing matches it",
    "predict nosuch.onnx x.jpg": "nosuch.onnx: no such file; write one with lht export RUN",
    "evaluate nosuch": "nosuch: no such run directory",
    "evaluate half": "half: not a complete run, hierarchy.json and model.safetensors missing",
    "evaluate run nosuch": "nosuch: no such file or folder, and not a dataset",
    "calibrate nosuch": "nosuch: no such run directory",
    "export nosuch": "nosuch: no such run directory",
    "report nosuch": "nosuch: no such run directory",
    "next nosuch": "nosuch: no such file or folder, and not a dataset",
    "next demo --cost species=-1": "--cost of species is -1: it must be above 0",
    "next demo --strategy nope": "unknown strategy 'nope': known: ",
    "report run --compare half nosuch": "nosuch: no such run directory",
    "compare nosuch --out x": "nosuch: no such file or folder, and not a dataset",
    "compare demo --out x --methods lht*,flat:width=8,nope": "unknown method 'nope': known: ",
    "lowshot nosuch --out x": "nosuch: no such file or folder, and not a dataset",
    "data pack nosuch --out x": "nosuch: no such file or folder, and not a dataset",
    "data preview nosuch": "nosuch: no such file or folder, and not a dataset",
    "hierarchy show nosuch": "nosuch: no such file or folder",
    "nosuch": "unknown command 'nosuch'",
}


def python(code: str, *words: str, where: Path | None = None) -> Any:
    """What a new process prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_mistakes_are_answered_without_torch(tmp_path: Path) -> None:
    for folder in ("run", "half"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.yaml").touch()
    for name in ("hierarchy.json", "model.safetensors"):
        (tmp_path / "run" / name).touch()
    found = python(ASK, json.dumps(list(WRONG)), where=tmp_path)
    wanted = {words: start and f"lht: {start}" for words, start in WRONG.items()}
    assert {words: line for words, (line, _) in found.items() if not line.startswith(wanted[words])} == {}
    assert [words for words, (_, torch) in found.items() if torch] == []


LIBRARY = [
    "torchlht.answer.model",
    "torchlht.answer.calibration",
    "torchlht.answer.exported.read",
    "torchlht.heads.methods.lht",
    "torchlht.measure.evaluation",
    "torchlht.learn.steps",
    "torchlht.learn.fitting",
    "torchlht.learn.trained",
]
IMPORT = """
import importlib, json, sys

def there(names):
    return [name for name in names if name in sys.modules]

import torchlht
import torchlht.learn.options
found = {"torchlht": there(["torch", "numpy"])}
import numpy as np
import torch
before = there(json.loads(sys.argv[1]))
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
    found[name] = sorted({*there(json.loads(sys.argv[1]))} - {*before})
run = torchlht.train("birds.npz", epochs=1, out="run", quiet=True, track=False)
run.predict("birds.npz")
found["train and predict on features"] = sorted({*there(json.loads(sys.argv[3]))} - {*before})
from torchlht.sklearn import HierarchicalClassifier
with np.load("birds.npz") as birds:
    names = birds["y"][:, ::-1].astype(str)
    HierarchicalClassifier("lht", semi="propagate").fit(birds["x"], names).predict(birds["x"])
found["fit and predict on arrays"] = sorted({*there(json.loads(sys.argv[3]))} - {*before})
print(json.dumps(found))
"""


def test_the_library_imports_nothing_that_features_do_not_need(tmp_path: Path) -> None:
    rows, rng = np.arange(40), np.random.default_rng(0)
    y = np.stack([rows % 4, rows % 4 // 2], axis=1)
    np.savez(tmp_path / "birds.npz", x=rng.normal(size=(40, 5)).astype("float32"), y=y, train=rows < 30)
    found = python(IMPORT, json.dumps(SLOW), json.dumps(LIBRARY), json.dumps(HEAVY), where=tmp_path)
    assert found == {part: [] for part in found}


# ---- the estimator -------------------------------------------------------------------------------------------------

ESTIMATOR = ("timm", "torchvision", "lightning_fabric", "lightning", "torchmetrics", "matplotlib")
LIGHT = f"""
import sys, warnings
warnings.simplefilter("error")
import numpy as np, torchlht
model = torchlht.HierarchicalClassifier(epochs=1, val=0.2, random_state=0)
after_import = [name for name in {ESTIMATOR} if name in sys.modules]
x = np.random.default_rng(0).normal(size=(60, 4))
model.fit(x, [["a", "b"], ["a", "c"], ["d", "e"]] * 20).predict(x, confidence=0.5)
assert not after_import, after_import
assert not (found := [name for name in {ESTIMATOR} if name in sys.modules]), found
"""


def test_it_works_without_what_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_scikit_learn_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['sklearn'] = None; import torchlht; torchlht.HierarchicalClassifier"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "torchlht.HierarchicalClassifier needs an optional package" in done.stderr
    assert "'torchlht[sklearn]'" in done.stderr
