"""Parts of the site that are made from the code and from result files when it is built, so that they cannot go stale.

{command-options}            every command, from its own options
{method-options}             every method, from its own keywords
{results} FILE               a table of accuracies: `:mask:`, `:methods:`, `:levels:`
{all-results}                every accuracy of every result file that `lht compare` wrote
{result}`FILE METHOD MASK LEVEL`                one accuracy, mean ± standard deviation over seeds
{lead}`FILE METHOD OTHER MASK LEVEL`            a difference of two means
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, get_args

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from figures import LEVELS, everything, lead, result, table
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util import inspect
from sphinx.util.docutils import SphinxDirective, SphinxRole

ROOT = Path(__file__).parents[1]
FIRST = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>torchlht</title><meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">torchlht</a></html>
"""


# ---- figures from result files ---------------------------------------------------------------------------------------


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


class AllResults(SphinxDirective):
    """Every accuracy in the result files."""

    def run(self) -> list[nodes.Node]:
        """The table, read as Markdown."""
        return parsed(self, everything())


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
                    own += [
                        nodes.paragraph("", "", *quoted(command.help)),
                        nodes.literal_block(usage, usage, language="console"),
                    ]
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
            part += options_list([(one.shown(), one.explained()) for one in options_of(name).values()])
            found.append(part)
        return found


# ---- the whole -------------------------------------------------------------------------------------------------------

NESTED = {
    "benchmarks/README": "/benchmarks/[!R]*",
    "docs/reproduce": "/benchmarks/reproduce/README",
    "benchmarks/reproduce/README": "/benchmarks/reproduce/*/table",
}


def nest(app: Sphinx, page: str, source: list[str]) -> None:
    """Benchmarks stand under the page that lists them. A forge shows these pages, too, so the lists are added here."""
    if page in NESTED:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{NESTED[page]}\n```\n"


def copy_pictures(app: Sphinx, fault: Exception | None) -> None:
    """Pictures of pages that choose between a light and a dark one in HTML, which is not read; and a first page at the root."""
    if fault is None and app.builder.name == "html":
        for picture in [*ROOT.glob("benchmarks/*.png"), *ROOT.glob("docs/*.png")]:
            place = Path(app.outdir) / picture.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, place)
        Path(app.outdir, "index.html").write_text(FIRST, encoding="utf-8")


def make_accessible(app: Sphinx, fault: Exception | None) -> None:
    """Headings say their level, sidebars and pictures what they are; what scrolls can be reached by keyboard."""
    if fault is None and app.builder.name == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8").replace('role="heading">', 'role="heading" aria-level="2">')
            for side, name in {"sidebar": "all pages", "toc": "this page"}.items():
                text = text.replace(f'<aside class="{side}-drawer', f'<aside aria-label="{name}" class="{side}-drawer')
            text = re.sub(
                r'(<a class="reference internal" href="plot_[^"]*")(?=><span class="doc">([^<]*))', r'\1 aria-label="\2"', text
            )
            page.write_text(re.sub(r"<pre(?=[ >])(?![^>]*tabindex)", '<pre tabindex="0"', text), encoding="utf-8")


GIVEN = (
    ".Named",
    ".LevelAnswer",
    ".Answer",
    ".Labels",
    ".Comparison",
    "Args",
)  # nobody makes these by hand, or from all of their fields


def readable_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Where `__new__` takes anything, since it only checks options, the signature of `__init__`; none of what one only gets."""
    if what == "class" and signature and name.endswith(GIVEN):
        return "", returned
    if what == "class" and "**options" in (signature or ""):
        found = inspect.signature(thing.__init__, bound_method=True, type_aliases=app.config.autodoc_type_aliases)
        signature = inspect.stringify_signature(found, show_return_annotation=False, unqualified_typehints=True)
    return signature, returned


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the parts."""
    inspect.TypeAliasForwardRef.__repr__ = lambda self: self.name  # type: ignore[method-assign]  # inside other types, too
    next(kind for kind in PyObject.doc_field_types if kind.name == "variable").label = "Attributes"
    app.add_role("result", Result())
    app.add_role("lead", Result())
    app.add_directive("results", Results)
    app.add_directive("all-results", AllResults)
    app.add_directive("command-options", CommandOptions)
    app.add_directive("method-options", MethodOptions)
    app.connect("source-read", nest)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("build-finished", copy_pictures)
    app.connect("build-finished", make_accessible)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
