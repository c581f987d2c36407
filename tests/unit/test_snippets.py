"""The command line understands every command that a page shows, and what is not run in tests has a reason."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import torchlht
from torchlht.cli import find_command, parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]
PLACEHOLDERS = {"METHOD": "lht", "…": ""}

# Pages with code that `tests/integration/test_documents.py` does not run as it stands there.
ELSEWHERE = {
    "docs/add-a-method.md": "tests/integration/test_contributing.py, and tests/integration/test_documents.py trains it",
    "docs/first-hour.md": "tests/integration/test_first_hour.py walks it",
    "docs/audit.md": "tests/integration/test_audit.py",
    "docs/graphs.md": "small data: tests/integration/test_graph_commands.py, test_several_pictures.py",
    "docs/index.md": "`make setup`, which every run of CI does, and the demo: tests/integration/test_documents.py",
    "docs/integrations.md": "boards and other packages: tests/unit/test_following.py and tests/integration/test_training.py",
    "docs/label.md": "opens a browser and waits: tests/integration/test_label_page.py and tests/doors/test_label.py",
    "docs/new-classes.md": "needs an official archive: tests/integration/test_lowshot_runs.py with drawn birds",
    "docs/next.md": "tests/integration/test_next.py, in small",
    "docs/reproduce.md": "hours, and official archives: tests/integration/test_reproduce.py with drawn birds",
    "docs/scale-out.md": "one line needs S3: tests/integration/test_shard_training.py and test_distributed.py",
    "docs/serve.md": "a server that stays: tests/integration/test_serve.py; Ray: test_bulk.py beside it; containers: not here",
    "docs/sklearn.md": "tests/integration/test_sklearn_example.py",
    "docs/web.md": "needs npm: tests/integration/test_web_page.py, where ONNX Runtime for browsers is found",
}


def commands(page: Path) -> list[str]:
    """The lines of a page that start lht, as one would type them."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    indented = "\n".join(re.findall(r"^ {4}(.*)", text, flags=re.MULTILINE))
    return re.findall(r"^(?:\$ )?(lht [a-z].*)$", f"{fenced}\n{indented}", flags=re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_of_a_page_is_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for line in commands(page):
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        name, rest = find_command([word for word in words if word])
        parse(name, rest)


def test_each_page_with_code_is_run_or_says_where_it_is() -> None:
    run = re.search(r"^PAGES = \[(.*?)\]", (ROOT / "tests/integration/test_documents.py").read_text(), re.DOTALL | re.MULTILINE)
    assert run
    listed = {f"{name}.md" for name in re.findall(r'"(.+?)"', run[1])} | set(ELSEWHERE)
    shown = {
        str(page.relative_to(ROOT))
        for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
        if re.search(r"^```(bash|console|python)\b|^    (\$ )?lht [a-z]", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert shown - listed == set()
    assert set(ELSEWHERE) - shown == set()
    assert [
        name for reason in ELSEWHERE.values() for name in re.findall(r"tests/\S+\.py", reason) if not (ROOT / name).is_file()
    ] == []


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference-python.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE))
    assert set(torchlht.__all__) - shown == {"__version__"}
