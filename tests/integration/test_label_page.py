"""`lht label` in a browser: a session by keyboard, two tabs, training, and training on what was exported."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from torchlht.cli import main
from torchlht.serve.label.journal import FILE, Answer, NewClass, Trained, Undo, read_journal

pytest.importorskip("uvicorn", reason="pip install 'torchlht[label]'")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SPECIES = {
    "Ivory Gull": ("Gulls", (240, 240, 235)),
    "Herring Gull": ("Gulls", (150, 160, 170)),
    "Atlantic Puffin": ("Auks", (220, 110, 40)),
    "Razorbill": ("Auks", (30, 30, 40)),
    "<b>Tern</b>": ("Terns", (90, 170, 90)),
}


def photograph(colour: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    """A bird before the sky, with noise as of a camera."""
    sky = np.linspace(120, 210, 60)[:, None, None] * np.array([0.7, 0.85, 1.0])
    image = Image.fromarray(np.clip(sky + rng.normal(0, 9, (60, 80, 3)), 0, 255).astype(np.uint8))
    draw, (x, y) = ImageDraw.Draw(image), rng.integers(20, 36, 2).tolist()
    draw.ellipse((x, y - 6, x + 30, y + 12), fill=colour)
    draw.ellipse((x + 22, y - 12, x + 36, y + 2), fill=colour)
    draw.polygon([(x + 34, y - 7), (x + 42, y - 4), (x + 34, y - 2)], fill=(230, 160, 40))
    return image


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of pictures: a few with a species, most without any label."""
    root, rng, rows = tmp_path_factory.mktemp("label"), np.random.default_rng(0), []
    for j in range(16):
        for name, (family, colour) in SPECIES.items():
            file = f"{name.replace(' ', '-').strip('<>b/')}-{j}.jpg".replace("</b>", "")
            photograph(colour, rng).save(root / file)
            rows.append(f"{file},{family if j < 2 else ''},{name if j < 2 else ''}")
    (root / "birds.csv").write_text("path,family,species\n" + "\n".join(rows) + "\n")
    return root / "birds.csv"


@pytest.fixture(scope="module")
def address(data: Path) -> Iterator[str]:
    """A running server's address, with its token."""
    if BROWSER is None:
        pytest.skip("no browser to open the page in: install the Debian package chromium")
    names = data.parent / "names.csv"
    names.write_text("name,synonym\nHerring Gull,Larus argentatus\n")
    environment = os.environ | {"LHT_CACHE": str(data.parent / "cache")}
    words = ["label", str(data), "--no-browser", "--backbone", "small", "--train-every", "0", "--blind", "0"]
    words += ["--cost", "species=1,family=0.2", "--synonyms", str(names)]
    with subprocess.Popen(
        [sys.executable, "-m", "torchlht", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        said = ""
        while "open http" not in said:
            line = server.stdout.readline()
            assert line, said
            said += line
        yield re.search(r"open (\S+)", said)[1]  # type: ignore[index]
        server.send_signal(signal.SIGINT)
        said, code = server.stdout.read(), server.wait(20)
        assert "every answer is saved; next: lht label export" in said, f"exit code {code}: {said}"
        assert code == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright, and the Debian package chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


class Tab:
    """The page in a window of its own, and everything it asked for or complained about."""

    def __init__(self, browser: Any, address: str, person: str, width: int = 1280) -> None:
        self.page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
        self.faults: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.asked.add("/".join(request.url.split("/")[:3])))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")
        self.page.fill("#person", person)
        self.page.press("#person", "Tab")
        self.page.evaluate("document.activeElement.blur()")

    def queue(self, name: str) -> None:
        self.page.select_option("#queue", name)
        self.until("document.body.getAttribute('aria-busy') === 'false'")

    def press(self, keys: str, saved: int | None = None) -> None:
        """Type letters, or press one key; wait until the page shows so many answers as saved."""
        if len(keys) > 1 and keys[0].islower():
            self.page.keyboard.type(keys)
        else:
            self.page.keyboard.press(keys)
        if saved is not None:
            self.until(f"document.getElementById('saved').textContent === 'saved {saved}'")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def learns_on_and_on(self) -> None:
        """From now on the page hears that a training has ended, whenever it asks."""
        learned = iter(range(1000, 2000))

        def newer(route: Any) -> None:
            answer = route.fetch()
            said = answer.json()
            said["learning"]["asked"] = next(learned)
            route.fulfill(response=answer, json=said)

        self.page.route("**/api/changes*", newer)

    def until(self, script: str, patience: int = 60) -> None:
        """Wait until a script says so, for some seconds. Playwright's own way needs eval, which the page forbids."""
        for _ in range(20 * patience):
            if self.page.evaluate(script):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never: {script}; {self.text('body')}")


def answers(data: Path) -> list[Answer]:
    return [entry for entry in read_journal(Path(f"{data}.labels") / FILE).entries if isinstance(entry, Answer)]


def species_of(tab: Tab) -> str:
    """What the picture on the screen shows, by the name of its file."""
    file = tab.text("#key").rpartition("-")[0].replace("-", " ")
    return next(name for name in SPECIES if name.strip("<>b/").replace("</b>", "").strip("<") in file or file in name)


LETTERS = {"Ivory Gull": "ivg", "Herring Gull": "laar", "Atlantic Puffin": "apu", "Razorbill": "raz", "<b>Tern</b>": "btern"}


def test_a_session_by_keyboard(data: Path, address: str, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = data.read_bytes()
    tab = Tab(browser, address, "ann")
    tab.queue("unlabelled")
    done: dict[str, str] = {}
    for n in range(30):  # labels by a few letters, some not to the end
        key, name = tab.text("#key"), species_of(tab)
        if n % 10 == 8:
            tab.press("?", n + 1)
            done[key] = "cant_tell"
        elif n % 10 == 9:
            tab.press(SPECIES[name][0].lower())
            tab.press(".", n + 1)
            done[key] = SPECIES[name][0]
        else:
            tab.press(LETTERS[name])
            tab.press("Enter", n + 1)
            done[key] = name
        tab.until(f"document.getElementById('key').textContent !== {key!r}")
    written = answers(data)
    assert {one.samples[0]: one.path[-1] if one.path else one.what for one in written} == done
    assert {one.by for one in written} == {"ann"}
    assert [one.what for one in written[8:10]] == ["cant_tell", "only"]

    for n in range(3):  # undo, then redo
        tab.press("Control+z")
        tab.until(f"document.getElementById('told').textContent.startsWith('{29 - n} answers')")
    tab.press("Control+y")
    tab.until("document.getElementById('told').textContent.startsWith('28 answers')")
    assert sum(isinstance(one, Undo) for one in read_journal(Path(f"{data}.labels") / FILE).entries) == 3

    tab.press("gulls")  # a new class under a family
    tab.press("+")
    tab.page.fill("#new-name", "Sabine <i>Gull</i>")
    tab.page.press("#new-name", "Enter")
    tab.until("document.getElementById('results').textContent.includes('Sabine <i>Gull</i>')")
    tab.press("Enter", 29)
    assert answers(data)[-1].path == ["Gulls", "Sabine <i>Gull</i>"]
    assert any(isinstance(one, NewClass) for one in read_journal(Path(f"{data}.labels") / FILE).entries)
    assert tab.page.locator("#single i, #single b").count() == 0  # names are text

    tab.press("Control+g")  # many at once
    tab.queue("named")
    tab.page.fill("#wanted", "Razorbill-1")
    tab.page.press("#wanted", "Enter")
    tab.until("document.querySelectorAll('#cells li').length === 7")
    tab.page.evaluate("document.activeElement.blur()")
    tab.press("Control+a")
    tab.press("raz")
    tab.press("Enter", 30)
    assert len(answers(data)[-1].samples) == 7
    tab.press("Control+g")

    other = Tab(browser, address, "ben", width=820)  # a tablet
    for one in (tab, other):
        one.queue("all")
        one.until("document.getElementById('place').textContent === '1 of 80'")
    tab.press("raz")
    tab.press("Enter", 31)
    other.press("ivg")
    other.press("Enter")
    other.until("document.getElementById('conflict').open")
    assert "ann says Auks › Razorbill" in other.text("#both")
    assert "you say Gulls › Ivory Gull" in other.text("#both")
    assert answers(data)[-1].by == "ann"  # nothing is overwritten silently
    other.page.click("#conflict button[value=mine]")
    other.until("document.getElementById('saved').textContent === 'saved 32'")
    assert (answers(data)[-1].by, answers(data)[-1].path[-1]) == ("ben", "Ivory Gull")
    assert other.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0

    tab.until("!document.getElementById('train').disabled", 300)  # features are there
    tab.page.click("#train")
    tab.until("document.querySelectorAll('#curve svg').length === 1", 300)
    trained = [one for one in read_journal(Path(f"{data}.labels") / FILE).entries if isinstance(one, Trained)]
    assert trained[-1].answers == 32
    assert set(trained[-1].accuracy) == {"family", "species"}
    tab.queue("next")
    tab.until("document.querySelectorAll('#thinks .bar').length > 0", 300)
    assert tab.text("#suggestion").startswith("suggested")
    assert re.match(r"(species\?|family\? Down to the family is enough\.)$", tab.text("#asked"))  # the question of lht next
    assert "unsure of its" in tab.page.get_attribute("#asked", "title")
    assert ", cost " in tab.text("#told")

    for one in (tab, other):
        assert one.faults == [] or one.faults == [
            "Failed to load resource: the server responded with a status of 409 (Conflict)"
        ]
        assert one.asked == {address.partition("/?")[0]}  # nothing outside

    monkeypatch.setenv("LHT_CACHE", str(data.parent / "cache"))
    out = data.parent / "labelled.csv"
    main(["label", "export", str(data), "--out", str(out)])
    assert data.read_bytes() == before
    options = ["--backbone", "small", "--epochs", "1", "--image-size", "16", "--quiet", "--out", str(data.parent / "run")]
    main(["train", str(out), *options])
    assert (data.parent / "run" / "metrics.json").is_file()


def test_a_second_server_on_the_same_data_says_so(data: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["label", str(data), "--no-browser"])
    assert stop.value.code == 2
    assert "another lht label is open on this data" in capsys.readouterr().err


def test_no_key_answers_a_picture_that_is_not_on_the_screen_yet(data: Path, address: str, browser: Any) -> None:
    tab = Tab(browser, address, "cat")
    tab.queue("all")
    held: list[Any] = []
    tab.page.route("**/api/sample/*", lambda route: held.append(route))  # the server takes its time
    tab.press("ArrowRight")
    tab.until("document.body.getAttribute('aria-busy') === 'true'")
    before = len(answers(data))
    tab.press("raz")
    tab.press("Enter")
    tab.press("?")
    assert "still to come" in tab.text("#message")
    while not held:
        tab.page.wait_for_timeout(10)
    held.pop().continue_()
    tab.until("document.getElementById('place').textContent === '2 of 80'")
    assert len(answers(data)) == before
    assert tab.faults == []


def test_new_suggestions_do_not_come_in_the_place_of_a_queue_that_was_asked_for(data: Path, address: str, browser: Any) -> None:
    tab = Tab(browser, address, "cat")
    held: list[Any] = []
    tab.page.route("**/api/queue*", lambda route: held.append(route))  # the server takes its time
    tab.page.select_option("#queue", "all")
    tab.learns_on_and_on()
    with tab.page.expect_response("**/api/changes*"):
        pass
    tab.page.wait_for_timeout(300)  # for what the page makes of it
    held.pop().continue_()
    tab.until("document.getElementById('place').textContent === '1 of 80'", 10)
    assert tab.faults == []


def test_what_was_selected_and_answered_by_somebody_meanwhile_is_asked_about(data: Path, address: str, browser: Any) -> None:
    one, two = (Tab(browser, address, person) for person in ("dan", "eva"))
    for tab in (one, two):
        tab.queue("all")
    one.press("Control+g")
    one.until("document.querySelectorAll('#cells li').length > 5")
    one.press(" ")  # the first
    one.until("document.querySelectorAll('#cells li.on').length === 1")
    two.press("raz")
    two.press("Enter")
    two.until("document.getElementById('saved').textContent.startsWith('saved')")
    one.until("document.getElementById('message').textContent.includes('some of those selected')")
    one.press("ivg")
    one.press("Enter")
    one.until("document.getElementById('conflict').open")
    assert "eva says Auks › Razorbill" in one.text("#both")
    assert answers(data)[-1].by == "eva"


def test_a_picture_shown_again_with_new_suggestions_still_meets_the_answer_of_somebody(
    data: Path, address: str, browser: Any
) -> None:
    one, two = (Tab(browser, address, person) for person in ("fay", "gus"))
    for tab in (one, two):
        tab.queue("all")
    one.press("raz")
    one.press("Enter")
    one.until("document.getElementById('saved').textContent.startsWith('saved')")
    two.learns_on_and_on()
    two.until("document.getElementById('history').textContent.includes('fay')")  # it was shown again
    assert two.text("#message") == "somebody else has answered this one meanwhile"
    two.press("ivg")
    two.press("Enter")
    two.until("document.getElementById('conflict').open")
    assert "fay says Auks › Razorbill" in two.text("#both")
    assert answers(data)[-1].by == "fay"
