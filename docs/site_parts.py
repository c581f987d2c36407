"""Parts of the site that are made from the code and from result files when it is built, so that they cannot go stale.

    {command-options}            every command, from its own options
    {method-options}             every method, from its own keywords
    {results} FILE               a table of accuracies: `:mask:`, `:methods:`, `:levels:`
    {result}`FILE METHOD MASK LEVEL`                one accuracy, mean ± standard deviation over seeds
    {lead}`FILE METHOD OTHER MASK LEVEL`            a difference of two means
"""

from __future__ import annotations

import csv
import shutil
import statistics
from pathlib import Path
from typing import Any, get_args

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LEVELS = ("order", "family", "species")


# ---- figures from result files ---------------------------------------------------------------------------------------


def accuracies(file: str, method: str, mask: float, level: str) -> list[float]:
    """Accuracies in percent, one per seed, of a results.csv as `lht compare` writes it."""
    with (RESULTS / file).open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["method"] == method and float(row["mask"]) == mask]
    found = [100 * float(row["accuracy"]) for row in rows if row["level"] == level]
    if not found:
        raise ValueError(f"{file} has no {level} of {method} at mask {mask}")
    return found


def spread(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def result(words: str) -> str:
    """The text of a {result}."""
    file, method, mask, level = words.split()
    return spread(accuracies(file, method, float(mask), level))


def lead(words: str) -> str:
    """The text of a {lead}."""
    file, method, other, mask, level = words.split()
    ours, theirs = (statistics.mean(accuracies(file, name, float(mask), level)) for name in (method, other))
    return f"{ours - theirs:.1f}"


def table(file: str, methods: list[str], mask: float, levels: tuple[str, ...] = LEVELS) -> list[str]:
    """A table of accuracies in Markdown; a method may be given as NAME = what to call it."""
    lines = ["| method | " + " | ".join(levels) + " |", "|---" * (1 + len(levels)) + "|"]
    for one in methods:
        name, _, said = (word.strip() for word in one.partition("="))
        figures = [spread(accuracies(file, name, mask, level)) for level in levels]
        lines.append(f"| {said or f'`{name}`'} | " + " | ".join(figures) + " |")
    return lines


class Result(SphinxRole):
    """A figure in a sentence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The figure."""
        return [nodes.Text({"result": result, "lead": lead}[self.name](self.text))], []


class Results(SphinxDirective):
    """A table of accuracies."""

    required_arguments = 1
    option_spec = {"mask": float, "methods": directives.unchanged_required, "levels": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The table, read as Markdown."""
        methods = [one.strip() for one in self.options["methods"].split(",")]
        levels = tuple(one.strip() for one in self.options["levels"].split(",")) if "levels" in self.options else LEVELS
        return parsed(self, table(self.arguments[0], methods, self.options["mask"], levels))


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    """What Markdown says."""
    inside = nodes.container()
    directive.state.nested_parse(StringList(lines, "site_parts"), directive.content_offset, inside)
    return inside.children


# ---- commands and methods --------------------------------------------------------------------------------------------


def options_list(pairs: list[tuple[str, str]]) -> nodes.definition_list:
    """Options and what they mean."""
    found = nodes.definition_list(classes=["options"])
    for shown, meaning in pairs:
        term = nodes.term("", "", nodes.literal("", shown))
        found += nodes.definition_list_item("", term, nodes.definition("", nodes.paragraph("", "", *quoted(meaning))))
    return found


def quoted(text: str) -> list[nodes.Node]:
    """Text whose backticks mark literals."""
    return [nodes.literal("", one) if i % 2 else nodes.Text(one) for i, one in enumerate(text.split("`"))]


def section(title: str, name: str) -> nodes.section:
    """A section with a heading that can be linked to."""
    return nodes.section("", nodes.title("", title), ids=[name], names=[name])


class CommandOptions(SphinxDirective):
    """Every command."""

    def run(self) -> list[nodes.Node]:
        """A section for each, by group."""
        from torchlht.cli import all_commands
        from torchlht.commands.arguments import usage_line, words_and_groups
        from torchlht.commands.base import Group

        found: list[nodes.Node] = []
        for group in get_args(Group):
            part = section(group.capitalize(), group.replace(" ", "-"))
            for name, command in sorted(all_commands().items()):
                if command.group == group:
                    own = section(f"lht {name}", f"lht-{name.replace(' ', '-')}")
                    words, groups = words_and_groups(command.options)
                    usage = usage_line(name, words)
                    own += [nodes.paragraph("", "", *quoted(command.help)), nodes.literal_block(usage, usage, language="console")]
                    for title, members in ({"": words} | groups).items():
                        own += [nodes.rubric("", title)] if title else []
                        own += options_list([(one.shown(), one.explained()) for one in members])
                    part += own
            found.append(part)
        return found


class MethodOptions(SphinxDirective):
    """Every method."""

    def run(self) -> list[nodes.Node]:
        """A section for each, with its options."""
        from torchlht.heads.method import find_method, list_methods, options_of

        found: list[nodes.Node] = []
        for name in list_methods():
            part = section(name, f"method-{name}")
            part += nodes.paragraph("", "", *quoted(find_method(name).summary))
            flags = [(f"--{one.name.replace('_', '-')} {one.kind}", one) for one in options_of(name).values()]
            part += options_list([(flag, f"{one.meaning} (default: {one.default})") for flag, one in flags])
            found.append(part)
        return found


def copy_pictures(app: Sphinx, fault: Exception | None) -> None:
    """Pictures of pages that choose between a light and a dark one in HTML, which is not read; and a first page at the root."""
    if fault is None and app.builder.name == "html":
        for picture in [*ROOT.glob("benchmarks/*.png"), *ROOT.glob("docs/*.png")]:
            place = Path(app.outdir) / picture.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, place)
        first = '<!doctype html><meta charset="utf-8"><title>torchlht</title><meta http-equiv="refresh" content="0; url=docs/index.html">'
        Path(app.outdir, "index.html").write_text(f'{first}<a href="docs/index.html">torchlht</a>\n', encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the parts."""
    app.add_role("result", Result())
    app.add_role("lead", Result())
    app.add_directive("results", Results)
    app.add_directive("command-options", CommandOptions)
    app.add_directive("method-options", MethodOptions)
    app.connect("build-finished", copy_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
