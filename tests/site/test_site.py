"""The site as `make docs` has built it, and pages as a forge shows them: no dead link, no request."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = ["docs/index", "docs/first-hour", "docs/gallery/index", "docs/reference-commands", "benchmarks/compare-cub"]
PAGES += ["docs/tutorials/birds", "benchmarks/house"]  # outputs of notebooks; a table too wide for a desk
MARKDOWN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
BUILT_ALONE = ("gallery/", "tutorials/")  # the gallery is written when the site is built

built = pytest.mark.skipif(not SITE.is_dir(), reason="`make docs` builds the site")


# ---- links -------------------------------------------------------------------------------------------------------------


def outside(link: str) -> bool:
    return re.match(r"[a-z]+:|//", link) is not None


@functools.cache
def anchors_of_site(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


@built
def test_every_link_and_picture_of_the_site_is_there() -> None:
    dead = []
    pages = list(SITE.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = re.sub(r"<(pre|script|svg).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in map(html.unescape, re.findall(r'(?:href|src|srcset)="([^"]*)"', text)):
            place, _, anchor = unquote(link).partition("#")
            target = (page.parent / place.split("?")[0]) if place else page
            if outside(link) or "genindex" in place:
                continue
            if not target.exists() or (anchor and target.suffix == ".html" and anchor not in anchors_of_site(target.resolve())):
                dead.append(f"{page.relative_to(SITE)}: {link}")
    assert dead == []


@functools.cache
def anchors_on_a_forge(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.MULTILINE
    )
    plain = [re.sub(r"\[(.*?)\]\(.*?\)|[`*]", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_is_there_on_a_forge(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    dead = []
    for link in links:
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if outside(link) or place.startswith(BUILT_ALONE):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_on_a_forge(target)):
            dead.append(link)
    assert dead == []


@built
def test_the_reference_shows_what_people_call_and_readable_types() -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (SITE / "docs" / "reference-python.html").read_text(encoding="utf-8")))
    for shown in ("predict(inputs: Inputs", "LHTHead(in_features: int", "fit(X: ArrayLike", "classes_ –", "Named"):
        assert shown in text, shown
    for internal in ("TypeAliasForwardRef", "_NestedSequence", "msgspec", "Annotated["):
        assert internal not in text, internal


# ---- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def axe() -> str:
    found = [*ROOT.glob(".venv/node_modules/axe-core/axe.min.js")]
    return found[0].read_text(encoding="utf-8") if found else ""


@pytest.fixture(params=["light", "dark"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An empty page that counts what it asks for and says."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 390, "height": 800})
    opened = context.new_page()
    opened.asked, opened.said = [], []
    opened.on("request", lambda asked: opened.asked.append(asked.url))
    opened.on("console", lambda message: opened.said.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda fault: opened.said.append(str(fault)))
    yield opened
    context.close()


@built
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_quiet_accessible_and_as_wide_as_a_phone(page: Any, axe: str, name: str) -> None:
    page.goto((SITE / f"{name}.html").as_uri())
    page.wait_for_timeout(300)
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if axe:
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"] == []


def rows(page: Any) -> list[str]:
    return page.locator("article table").first.locator("tbody tr:visible").all_inner_texts()


@built
def test_a_table_is_filtered_and_sorted(page: Any) -> None:
    page.goto((SITE / "benchmarks" / "compare-cub.html").as_uri())
    form = page.locator("form.filters").first
    assert len(rows(page)) == 54
    form.get_by_label("masked").select_option("90%")
    assert len(rows(page)) == 18
    assert form.locator("output").inner_text() == "18 of 54 rows"
    heading = page.locator("article table").first.locator("th").nth(4)
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert "lht-c2f" in rows(page)[0]
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert "marginal" in rows(page)[0]
    form.get_by_label("containing").fill("lht-")
    assert sorted(row.split()[1] for row in rows(page)) == ["lht-c2f", "lht-full", "lht-paper", "lht-simplified"]


@built
def test_a_table_of_words_fits_a_phone_and_has_no_filters(page: Any) -> None:
    page.goto((SITE / "docs" / "which-method.html").as_uri())
    table = page.locator("article table").first
    assert table.evaluate("table => table.previousElementSibling?.matches('form') ?? false") is False
    assert table.evaluate("table => table.parentElement.scrollWidth <= table.parentElement.clientWidth")
    assert table.locator("td").nth(1).get_attribute("data-title") == "take"


@built
def test_short_words_of_a_table_are_not_broken_on_a_phone(page: Any) -> None:
    page.goto((SITE / "docs" / "graphs.html").as_uri())
    method = page.locator("table.pairs code").get_by_text("marginal", exact=True).first
    assert method.evaluate("word => word.getClientRects().length") == 1


@built
def test_the_search_works_without_a_server(page: Any) -> None:
    page.goto((SITE / "search.html").as_uri() + "?q=calibrate")
    page.wait_for_selector("#search-results li", timeout=20_000)
    assert page.locator("#search-results li").count() > 3


@built
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("tune", "Compare and tune"),
        ("fix a tree", "Check, fix or find a tree"),
        ("choose a method", "Choose a method"),
        ("add a method", "Add a method"),
        ("json schema", "File formats and JSON schemas"),
        ("calibration", "Calibration and risk"),
        ("wrong labels", "Audit: find wrong labels"),
        ("label pictures", "Label pictures on a page"),
        ("several labels", "Several labels per sample"),
        ("serve", "Serve answers over HTTP"),
        ("web page", "Export a web page"),
        ("benchmarks", "Benchmarks"),
    ],
)
def test_the_page_one_looks_for_is_found_first(page: Any, words: str, first: str) -> None:
    page.goto((SITE / "search.html").as_uri() + f"?q={words}")
    page.wait_for_selector("#search-results li", timeout=20_000)
    assert page.locator("#search-results li").first.inner_text().startswith(first)
