"""Small faults are put into the code, one at a time; a fault that no test notices is a survivor. Takes an hour or so.

    pip install mutmut
    python benchmarks/mutants.py                               all rooms; `--rooms losses metrics` for some of them
    python benchmarks/mutants.py --again runs/mutants.json     survivors only, after tests were added

Faults are mutmut's: - for +, < for <=, another number or text, either branch of a choice, and so on. A call loses one of its
named arguments, or is left out where it stands by itself. An argument or a value that becomes None is not tried, since that
ends in an error almost everywhere and any test would notice. Faults are made in the bodies of functions, not in what is
raised or asserted, nor in `strict=True`.
mutmut's own runner leaves out functions with a decorator and collects tests anew for every fault. Here tests are collected
once, and every fault has a fork, in which one function gets its faulty code. There the tests run that call the function,
quick ones first, until one fails. Tests that start Python anew do not see the fault.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import gc
import importlib
import itertools
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import libcst as cst
import pytest
from hypothesis import Phase, settings
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

SOURCES, TESTS = Path("src/torchlht"), Path("tests")
# Each room: its sources, and the tests that are to notice its faults.
ROOMS: dict[str, tuple[list[str], list[str]]] = {
    "losses": (
        ["heads/prediction.py"],
        ["unit/test_losses*.py", "unit/test_answer*.py", "unit/test_rules.py", "unit/test_numerics.py", "unit/test_steps.py"],
    ),
    "metrics": (["measure/metrics.py"], ["unit/test_metrics*.py"]),
    "transition": (
        ["heads/transition/*.py"],
        ["unit/test_transition*.py", "unit/test_theory.py", "unit/test_numerics.py", "unit/test_methods.py"],
    ),
    "answer": (
        ["answer/calibration.py", "answer/named.py", "measure/operating.py"],
        ["unit/test_answer*.py", "unit/test_calibration.py", "unit/test_rollup.py", "integration/test_answers.py"],
    ),
    "semi": (["learn/semi/*.py"], ["unit/test_semi*.py", "integration/test_semi_training.py"]),
    "training": (
        ["learn/training.py", "learn/fitting.py", "learn/steps.py"],
        [
            *("unit/test_steps.py", "unit/test_processes.py", "unit/test_training*.py"),
            *(f"integration/test_{name}.py" for name in ("training", "semi_training", "answers", "pictures")),
        ],
    ),
}
SLOWEST = 10.0  # seconds: a test that takes longer is left out
UNTOUCHED = (cst.Annotation, cst.Decorator, cst.Parameters, cst.Raise, cst.Assert)
Place = tuple[str, str, int]  # a file, the name of a function in it, and its first line

# ---- faults --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A fault: the file, its number there, the function (its name and first line), and the text of the file with the fault."""

    file: Path
    number: int
    function: str
    line: int
    text: str

    def described(self) -> dict[str, Any]:
        """Where it is, and the lines that change."""
        lines = difflib.unified_diff(self.file.read_text().splitlines(), self.text.splitlines(), n=0, lineterm="")
        change = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        file = str(self.file.relative_to(Path.cwd()))
        return {"file": file, "number": self.number, "function": self.function, "change": change}

    @property
    def place(self) -> Place:
        """The function."""
        return str(self.file), self.function, self.line

    def put_in(self, functions: Sequence[FunctionType]) -> None:
        """Give the function its faulty code, wherever it is known."""
        (new,) = (code for code in codes(compile(self.text, str(self.file), "exec")) if place_of(code) == self.place)
        for function in functions:
            names = function.__code__.co_freevars
            function.__code__ = new if new.co_freevars else new.replace(co_freevars=names)


def place_of(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def all_functions(files: set[str]) -> dict[Place, list[FunctionType]]:
    """The functions of some files that are known anywhere, behind decorators as well."""
    found: dict[Place, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename in files:
            found.setdefault(place_of(one.__code__), []).append(one)
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code with all that are inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def without_call(node: cst.Expr) -> Iterator[cst.CSTNode]:
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def without_named(node: cst.Call) -> Iterator[cst.CSTNode]:
    for i, argument in enumerate(node.args):
        if argument.keyword and argument.keyword.value != "strict":
            yield node.with_changes(args=[*node.args[:i], *node.args[i + 1 :]])


def other_text(node: cst.BaseString) -> Iterator[cst.CSTNode]:
    yield from itertools.islice(mutators.operator_string(node), 1)


INSTEAD = (mutators.operator_arg_removal, mutators.operator_assignment, mutators.operator_string)
OPERATORS: list[tuple[type, Any]] = [one for one in mutators.mutation_operators if one[1] not in INSTEAD]
OPERATORS += [(cst.Expr, without_call), (cst.Call, without_named), (cst.BaseString, other_text)]


class Faults(cst.CSTVisitor):
    """All faults in the bodies of a module's functions: the function, its first line, a node and what replaces it."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, int, cst.CSTNode, cst.CSTNode]] = []
        self.path: list[cst.ClassDef | cst.FunctionDef] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        guard = isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "strict"
        if guard or isinstance(node, UNTOUCHED):
            return False
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            self.path.append(node)
        outer = next((i for i, one in enumerate(self.path) if isinstance(one, cst.FunctionDef)), None)
        if outer is not None:
            name, function = ".".join(one.name.value for one in self.path[: outer + 1]), self.path[outer]
            first = function.decorators[0] if function.decorators else function
            line = self.get_metadata(PositionProvider, first).start.line
            for kind, operator in OPERATORS:
                if isinstance(node, kind):
                    self.found += [(name, line, node, other) for other in operator(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self.path and self.path[-1] is original_node:
            self.path.pop()


def mutants(file: Path, keep: Any) -> Iterator[Mutant]:
    """The faults of a file whose number `keep` says yes to; those that cannot be compiled are left out."""
    wrapper, faults = MetadataWrapper(cst.parse_module(file.read_text())), Faults()
    wrapper.visit(faults)
    for i, (function, line, old, new) in enumerate(faults.found):
        if keep(i):
            text = wrapper.module.deep_replace(old, new).code  # type: ignore[arg-type]
            try:
                compile(text, str(file), "exec")
            except SyntaxError:
                continue
            yield Mutant(file, i, function, line, text)


def sampled(files: Sequence[Path], size: int, seed: int) -> tuple[int, list[Mutant]]:
    """How many faults there are in some files, and a sample of them."""
    counts = []
    for file in files:
        MetadataWrapper(cst.parse_module(file.read_text())).visit(faults := Faults())
        counts.append(len(faults.found))
    every = [(file, i) for file, count in zip(files, counts, strict=True) for i in range(count)]
    chosen = set(random.Random(seed).sample(every, min(size, len(every))))
    return len(every), [one for file in files for one in mutants(file, lambda i, f=file: (f, i) in chosen)]


# ---- tests ---------------------------------------------------------------------------------------------------------


class Runner:
    """A pytest plugin: after tests are collected, it runs them on every mutant instead of once."""

    def __init__(self, room: str, faults: list[Mutant]) -> None:
        self.room, self.faults, self.results = room, faults, list[dict[str, Any]]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        took, calls = json.loads(self.forked(lambda tell: tell(json.dumps(self.baseline(session)))))
        files = {str(fault.file) for fault in self.faults}
        for file in files:  # some are only imported when they are needed
            importlib.import_module(".".join(Path(file).relative_to(Path.cwd() / SOURCES.parent).with_suffix("").parts))
        functions = all_functions(files)
        gc.freeze()
        for i, fault in enumerate(self.faults):
            key = f"{fault.file}:{fault.function}"
            items = sorted((t for t in session.items if key in calls.get(t.nodeid, ())), key=lambda t: took[t.nodeid])
            started, limit = time.monotonic(), 10 + 4 * int(sum(took[item.nodeid] for item in items))
            put_in = functools.partial(fault.put_in, functions[fault.place])
            said = self.forked(functools.partial(self.attempt, session, put_in, items, limit))
            self.results.append({**fault.described(), "tests": len(items), "killed_by": said})
            seconds = time.monotonic() - started
            print(f"{self.room} {i + 1}/{len(self.faults)} {seconds:.1f} s {said or 'SURVIVED'} {fault.function}", flush=True)
        return True

    def forked(self, do: Any) -> str:
        """What `do` tells in a process of its own; "signal" where it was killed, as when it took too long."""
        read, write = os.pipe()
        if not (child := os.fork()):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            try:
                do(lambda text: os.write(write, text.encode()))
            except BaseException as error:
                os.write(write, f"error: {error!r}".encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        assert not said.startswith("error"), said
        return said or ("signal" if os.WIFSIGNALED(status) else "")

    def baseline(self, session: pytest.Session) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Seconds that every test takes, with its fixtures made for it alone, and the functions it calls."""
        files = {str(fault.file) for fault in self.faults}
        took, calls, seen = dict[str, float](), dict[str, set[str]](), set[str]()

        def look(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and frame.f_code.co_filename in files:
                seen.add(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname.split('.<locals>')[0]}")

        for item in session.items:
            seen.clear()
            started = time.process_time()
            sys.setprofile(look)
            run(item)
            sys.setprofile(None)
            assert not session.testsfailed, f"{item.nodeid} fails without any fault"
            took[item.nodeid] = time.process_time() - started
            if took[item.nodeid] < SLOWEST:
                calls[item.nodeid] = set(seen)
        return took, {name: sorted(found) for name, found in calls.items()}

    def attempt(self, session: pytest.Session, put_in: Any, items: Sequence[pytest.Item], limit: int, tell: Any) -> None:
        """Run tests until one fails, and tell which."""
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        signal.alarm(20 * limit)
        try:
            put_in()
        except ValueError as error:
            tell(f"cannot be put in: {error}")
            return
        for item in items:
            run(item)
            if session.testsfailed:
                tell(item.nodeid)
                return


def run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


# ---- the command ---------------------------------------------------------------------------------------------------


def try_room(room: str, size: int, seed: int, again: list[dict[str, Any]] | None, out: Path) -> None:
    """Write the results of a room to `out`."""
    sources, tests = ROOMS[room]
    files = [file for pattern in sources for file in sorted((Path.cwd() / SOURCES).glob(pattern))]
    names = [str(file) for pattern in tests for file in sorted(TESTS.glob(pattern))]
    every, faults = sampled(files, size, seed)
    if again is not None:
        faults = [fault for fault in faults if fault.described() in again]
    phases = (Phase.explicit, Phase.generate)  # no smaller example is looked for
    settings.register_profile("mutants", derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")
    runner = Runner(room, faults)
    with tempfile.TemporaryDirectory() as place:
        options = ["-o", "addopts=", "-n", "0", "-s", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += ["-p", "no:terminal", "-p", "no:cacheprovider", f"--basetemp={place}/tests"]
        code = pytest.main([*options, *names], plugins=[runner])
    assert code == 0, f"pytest ended with {code}"
    out.write_text(json.dumps({"faults": every, "results": runner.results}))


def summary(found: dict[str, Any]) -> str:
    """A row per room."""
    lines = ["| room | faults | tried | killed | survived | score |", "|---|---:|---:|---:|---:|---:|"]
    for room, one in found.items():
        tried = [r for r in one["results"] if not r["killed_by"].startswith("cannot")]
        killed = sum(bool(r["killed_by"]) for r in tried)
        score = killed / max(len(tried), 1)
        lines.append(f"| {room} | {one['faults']:,} | {len(tried)} | {killed} | {len(tried) - killed} | {score:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--sample", type=int, default=150, help="faults to try in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--again", type=Path, help="results of an earlier run with the same sample: only its survivors are tried"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/mutants.json"), help="where results go")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: threads do not survive a fork
    args.out.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(args.again.read_text()) if args.again else {}
    found = dict(before)
    for room in args.rooms:
        again = None
        if args.again:
            names = ("file", "number", "function", "change")
            again = [{name: r[name] for name in names} for r in before[room]["results"] if not r["killed_by"]]
        with tempfile.TemporaryDirectory() as place:
            if not (child := os.fork()):  # pytest runs once in a process
                try_room(room, args.sample, args.seed, again, Path(place, "found.json"))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, f"{room} failed"
            found[room] = json.loads(Path(place, "found.json").read_text())
        if args.again:
            kept = [r for r in before[room]["results"] if r["killed_by"]]
            found[room]["results"] = [*kept, *found[room]["results"]]
        args.out.write_text(json.dumps(found, indent=1))
    print(summary(found))


if __name__ == "__main__":
    main()
