"""Finding a run: a local directory, or one from the hub. Quick to import: a wrong name is refused at once."""

from __future__ import annotations

import os
from pathlib import Path

from torchlht.answer.records import CONFIG, TREE, WEIGHTS
from torchlht.errors import RunError

GRAPH = "graph.json"
"""What a run with several labels per sample has instead of a tree."""
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}  # of exported files


def is_exported(name: str | Path) -> bool:
    """Whether a name is that of a file written by `lht export`."""
    return Path(name).suffix.lower() in SUFFIXES.values()


def check_model(name: str | Path) -> None:
    """Raise RunError unless this is an exported file, a complete run, or a name that the hub may know."""
    (check_exported if is_exported(name) else check_run)(name)


def check_exported(path: str | Path) -> None:
    """Raise RunError unless there is such a file."""
    if not Path(path).is_file():
        raise RunError(f"{path}: no such file; write one with lht export RUN")


def check_folder(path: str | Path) -> None:
    """Raise RunError unless there is such a directory."""
    if not Path(path).is_dir():
        raise RunError(f"{path}: no such run directory")


def check_run(source: str | Path) -> None:
    """Raise RunError unless this is a complete run directory, or a name that the hub may know."""
    folder = Path(source)
    if _may_be_on_hub(source):
        return
    check_folder(source)
    tree = GRAPH if (folder / GRAPH).is_file() else TREE
    missing = [name for name in (CONFIG, tree, WEIGHTS) if not (folder / name).is_file()]
    if missing and (folder / "checkpoint").is_dir():
        raise RunError(f"{folder}: this run has not finished; continue it with lht train --resume {folder}")
    if missing:
        raise RunError(f"{folder}: not a complete run, {' and '.join(missing)} missing")


def find_run(source: str | Path) -> Path:
    """A complete local directory, downloaded from the hub if need be."""
    check_run(source)
    if not _may_be_on_hub(source):
        return Path(source)
    folder = _download(str(source))
    check_run(folder)
    return folder


def _may_be_on_hub(source: str | Path) -> bool:
    """Whether a name looks like an id of the hub, owner/name, and no directory has it."""
    name = str(source)
    written = name.count("/") == 1 and not name.startswith((".", "/", "~")) and Path(name).parent.name.isidentifier()
    return written and not Path(source).is_dir()


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from torchlht.answer.calibration import FILE as CALIBRATION
    from torchlht.answer.novelty import FILE as NOVELTY

    prefer_cache_when_offline()
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, TREE, WEIGHTS, CALIBRATION, NOVELTY]))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        why = f"no such run directory, and no download from the hub ({type(error).__name__})"
        raise RunError(f"{name}: {why}; is it within reach and, if private, is there a token?") from error


def prefer_cache_when_offline() -> None:
    """Let the hub's client use only its cache if the hub cannot be resolved, instead of retrying for a minute."""
    import socket
    from urllib.parse import urlparse

    import huggingface_hub.constants as hub

    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return  # the proxy resolves the address
    try:
        socket.getaddrinfo(urlparse(hub.ENDPOINT).hostname, 443)
    except OSError:
        hub.HF_HUB_OFFLINE = True
