"""How far one walks to follow a command: the functions and files of the package that it runs.

    python benchmarks/walk.py [--files]

What counts: a function or method that is written with `def` in a file of the package and runs at least once, also in a
thread or in a process that loads pictures. A function inside another counts for itself. What does not: bodies of modules and
classes, lambdas, comprehensions, what dataclasses generate, and whatever runs while a module is imported, such as a
decorator that registers. A file counts when one of its functions counts; that it is imported is not enough.

Each command runs in a process of its own on the drawn birds, which are drawn before. `--files` lists the files, too.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import multiprocessing.util
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torchlht
from torchlht.cli import main

PACKAGE = f"{Path(torchlht.__file__).resolve().parent}{os.sep}"
TRAIN = ["train", "demo", "--mask", "0.9", "--epochs", "1", "--seed", "0", "--no-track"]
COMPARE = ["compare", "demo", "--methods", "flat,lht", "--mask", "0.9", "--seeds", "1", "--epochs", "1", "--jobs", "1"]
COMMANDS = {
    "predict": ["predict", "first", "one.jpg"],
    "train": [*TRAIN, "--out", "second"],
    "compare": [*COMPARE, "--out", "compared"],
    "report": ["report", "first"],
}


class Walk:
    """The functions of the package that have run, as (file, name)."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self._known: set[CodeType] = set()
        self._importing = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if code in self._known or event not in ("call", "return"):
            return
        if not code.co_filename.startswith(PACKAGE):
            self._known.add(code)
        elif code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing:
            self._known.add(code)
            if code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<"):
                self.seen.add((code.co_filename.removeprefix(PACKAGE), f"{code.co_qualname}:{code.co_firstlineno}"))

    def follow_children(self, folder: Path) -> None:
        """Have every forked process leave what it has seen in a folder."""

        def leave() -> None:
            (folder / f"{os.getpid()}.json").write_text(json.dumps(sorted(self.seen)), encoding="utf-8")

        def forked(_: Walk) -> None:
            multiprocessing.util.Finalize(None, leave, exitpriority=0)

        multiprocessing.util.register_after_fork(self, forked)

    def run(self, words: list[str], folder: Path) -> None:
        """Run a command and look on."""
        self.follow_children(folder)
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            main(words)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        for file in folder.glob("*.json"):
            self.seen |= {(place, name) for place, name in json.loads(file.read_text(encoding="utf-8"))}


def follow(name: str) -> None:
    """Print what one command runs, as JSON."""
    walk = Walk()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        walk.run(COMMANDS[name], Path(folder))
    print(json.dumps(sorted(walk.seen)))


def walks() -> dict[str, list[tuple[str, str]]]:
    """What every command runs."""
    with tempfile.TemporaryDirectory() as folder:
        here = {**os.environ, "LHT_CACHE": f"{folder}/cache"}

        def python(*words: str) -> str:
            done = subprocess.run([sys.executable, *words], cwd=folder, env=here, check=True, stdout=subprocess.PIPE, text=True)
            return done.stdout

        python("-m", "torchlht", *TRAIN, "--quiet", "--out", "first")
        picture = next(path for path in sorted(Path(folder, "cache").rglob("*")) if path.suffix in (".jpg", ".png"))
        python("-c", f"from PIL import Image; Image.open({str(picture)!r}).convert('RGB').save('one.jpg')")
        return {name: json.loads(python(__file__, "--follow", name)) for name in COMMANDS}


def table(found: dict[str, list[tuple[str, str]]], *, files: bool) -> str:
    """The table, and the files of each command where they are asked for."""
    lines = ["command | functions | files", "--- | ---: | ---:"]
    lines += [f"{name} | {len(seen)} | {len({file for file, _ in seen})}" for name, seen in found.items()]
    for name, seen in found.items() if files else ():
        count = {file: sum(other == file for other, _ in seen) for file, _ in seen}
        lines += ["", f"{name}:", *(f"  {file} {n}" for file, n in sorted(count.items()))]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="list the files of each command")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    follow(options.follow) if options.follow else print(table(walks(), files=options.files))
