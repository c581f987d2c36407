"""The files of a run are what `docs/run.schema.json` says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from torchlht.cli import main

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "run.schema.json").read_text(encoding="utf-8"))


def test_the_files_of_a_run_fit_their_schemas(embeddings: Path, tmp_path: Path) -> None:
    main(["train", str(embeddings), "--epochs", "1", "--val", "0.2", "--quiet", "--out", str(tmp_path / "run")])
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name in ("hierarchy", "split", "metrics", "calibration"):
        found = json.loads((tmp_path / "run" / f"{name}.json").read_text(encoding="utf-8"))
        checked = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
        checked.validate(found)
        for key in SCHEMA["$defs"][name]["required"]:
            with pytest.raises(jsonschema.ValidationError):
                checked.validate({one: value for one, value in found.items() if one != key})
