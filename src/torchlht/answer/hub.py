"""The Hugging Face hub: putting a run there. `finding.find_run` takes one from there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from torchlht.answer.calibration import FILE as CALIBRATION
from torchlht.answer.card import card
from torchlht.answer.finding import GRAPH, check_run
from torchlht.answer.novelty import FILE as NOVELTY
from torchlht.answer.records import CONFIG, TREE, WEIGHTS, read_config
from torchlht.doors import entrance
from torchlht.errors import RunError, first_line
from torchlht.files import write_yaml

HELD = (TREE, WEIGHTS, CALIBRATION, NOVELTY, "metrics.json")
"""What goes there as it is. Of config.yaml only what the model needs: it names places on this machine."""


@entrance
def push(run: str | Path, name: str, *, private: bool = False) -> str:
    """Put a run on the hub with a model card; returns its address.

    Raises:
        RunError: when the run is not complete or has no tree, or the hub refuses it or is out of reach.
    """
    from huggingface_hub import HfApi, errors

    folder = Path(run)
    check_run(folder)
    if (folder / GRAPH).is_file():
        raise RunError(f"{folder}: only runs on a tree go to the hub, and this one is on a graph; its directory can be copied")
    network: type[Exception] = getattr(errors, "HTTPError", OSError)  # of whichever client the hub's package uses
    with tempfile.TemporaryDirectory() as place:
        there = Path(place)
        for file in HELD:
            if (folder / file).is_file():
                shutil.copy(folder / file, there)
        config = read_config(folder)
        write_yaml(there / CONFIG, {"torchlht": config.get("torchlht"), "model": config["model"]})
        (there / "README.md").write_text(card(folder, name), encoding="utf-8")
        hub = HfApi()
        try:
            hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=name, folder_path=there, commit_message="A run of torchlht")
        except (network, errors.HFValidationError, errors.LocalTokenNotFoundError, OSError) as error:
            raise RunError(
                f"{name}: the hub did not take it ({first_line(error)}); is it within reach, "
                "and is there a token that may write there?"
            ) from error
    return f"{hub.endpoint}/{name}"
