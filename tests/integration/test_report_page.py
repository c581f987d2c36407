"""`lht report`: the page of a small run on pictures, opened in a browser, and pages of other runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from torchlht.cli import main
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.show.page import report

NAMES = ["<b>Puffin</b>", 'Tufted "Puffin"', "Guillemot & co", "Red-legged Kittiwake", "$Tern$", "Arctic Tern"]
SECTIONS = ["metrics", "learning", "reliability", "operating", "confusion", "transitions"]
SECTIONS += ["grad-cam", "classes", "mistakes", "attributes", "reading"]
FIGURES = ["answered", "confusion-0", "confusion-1", "grad-cam-T", "grad-cam-both", "grad-cam-p1"]
FIGURES += ["learning", "operating", "reliability", "transition-0"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run on pictures, `lht`, one of another method, `flat`, and the page about both."""
    root = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    rows = ["path,family,species,split"]
    for i, name in enumerate(NAMES):
        for j in range(14):
            colour = np.array([40 * i, 255 - 40 * i, (90 * i) % 255])
            Image.fromarray(np.clip(colour + rng.normal(0, 90, (24, 28, 3)), 0, 255).astype(np.uint8)).save(
                root / f"{i}-{j}.png"
            )
            quoted = '"' + name.replace('"', '""') + '"'
            rows.append(f"{i}-{j}.png,{'Auks' if i < 3 else 'Gulls'},{quoted},{'test' if j < 5 else 'train'}")
    (root / "birds.csv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LHT_CACHE", str(root / "cache"))
        for method in ("lht", "flat"):
            options = {"backbone": "small", "epochs": 2, "batch_size": 16, "image_size": 16, "val": 0.3}
            train(TrainArgs(str(root / "birds.csv"), out=root / method, method=method, quiet=True, track=False, **options))
        report(root / "lht", compare=[root / "flat"], images=2)
        yield root


def test_everything_is_written_and_nothing_else(made: Path) -> None:
    written = {path.name for path in (made / "lht" / "report").iterdir()}
    assert written == {"report.html", *(f"{name}{end}.png" for name in FIGURES for end in ("", "-dark"))}
    for name in FIGURES:
        light, dark = (Image.open(made / "lht" / "report" / f"{name}{end}.png").convert("RGB") for end in ("", "-dark"))
        assert light.size == dark.size
        assert min(light.getpixel((0, 0))) > 240
        assert max(dark.getpixel((0, 0))) < 40


def test_the_page_says_what_it_is_about(made: Path) -> None:
    text = (made / "lht" / "report" / "report.html").read_text()
    assert re.findall(r'<section id="([\w-]+)"', text) == [key for key in SECTIONS if key != "attributes"]
    assert "On 30 test pictures, lht names the right family in" in text
    assert "Against flat (flat), lht is at family" in text
    assert re.search(r"species [+-][\d.]+ ± [\d.]+ \(n = 30\) points; ± is a 95 % interval that counts which samples", text)
    assert "&lt;b&gt;Puffin&lt;/b&gt;" in text
    assert "<b>" not in text
    assert "calibrated on the val part of its own data" in text
    assert text.count("<details>") == 4  # what metrics mean, points of flat, two ways of the gradient
    assert "attributes" not in text.lower().partition("<main>")[2].partition('id="reading"')[0]
    assert "labels known there" in text


# ---- in a browser --------------------------------------------------------------------------------------------------


class Tab:
    """A page in the browser, and everything it asked for or complained about."""

    def __init__(self, browser: Any, file: Path, scheme: str, width: int = 1200) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url.partition(":")[0]))
        self.page.goto(file.resolve().as_uri())

    def paper(self) -> str:
        """The colour behind everything."""
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    def shown(self) -> dict[str, int]:
        """How many figures of each theme are displayed; all of them must be there."""
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        images = self.page.evaluate(
            "Promise.all([...document.images].map(async i => (await i.decode().catch(() => 0), "
            "[i.className, i.offsetParent !== null, i.naturalWidth, i.getBoundingClientRect().width])))"
        )
        displayed = [image for image in images if image[1]]
        assert all(natural > 0 and width > 0 for _, _, natural, width in displayed)
        return {kind: sum(one[0] == kind for one in displayed) for kind in ("on-light", "on-dark", "")}

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_in_a_browser_it_is_whole_in_light_and_dark_and_asks_for_nothing(made: Path, browser: Any) -> None:
    file = made / "lht" / "report" / "report.html"
    papers = {}
    for scheme in ("light", "dark"):
        tab = Tab(browser, file, scheme)
        papers[scheme] = tab.paper()
        other = {"light": "dark", "dark": "light"}[scheme]
        assert tab.shown() == {f"on-{scheme}": len(FIGURES), f"on-{other}": 0, "": 2}  # and two mistakes
        assert tab.overflow() <= 0
        tab.page.click("#theme")
        assert tab.paper() != papers[scheme]
        assert tab.shown()[f"on-{other}"] == len(FIGURES)
        tab.page.click("#theme")
        assert tab.paper() == papers[scheme]
        assert tab.faults == []
        assert set(tab.asked) <= {"file", "data"}
        tab.page.close()
    assert papers == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 30)"}


def test_on_a_narrow_screen_tables_and_figures_scroll_and_the_page_does_not(made: Path, browser: Any) -> None:
    tab = Tab(browser, made / "lht" / "report" / "report.html", "light", width=400)
    assert tab.overflow() <= 0
    tab.shown()  # with all details open
    assert tab.overflow() <= 0
    boxes = tab.page.evaluate("[...document.querySelectorAll('.scroll')].map(b => [b.scrollWidth, b.clientWidth])")
    assert any(inner > outer for inner, outer in boxes)
    assert all(outer <= 400 for _, outer in boxes)
    tab.page.click("nav a[href='#operating']")
    top = tab.page.evaluate("document.getElementById('operating').getBoundingClientRect().top")
    assert 0 <= top < 200  # and not under the contents
    tab.page.close()


# ---- other runs ----------------------------------------------------------------------------------------------------


def test_a_run_on_features_says_what_it_cannot_show(
    embeddings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"epochs": 1, "quiet": True, "track": False}
    run = train(TrainArgs(str(embeddings), out=tmp_path / "run", method="multihead", option={"width": 12}, **options))
    attributes = tmp_path / "attributes.txt"
    np.savetxt(attributes, np.random.default_rng(0).random((6, 4)))
    main(["report", str(run), "--out", str(tmp_path / "page"), "--attributes", str(attributes), "--images", "3"])
    said = capsys.readouterr().out
    assert "Transitions: Method multihead has no transitions from fine to coarse." in said.replace("\n", " ")
    assert "left out: Grad-CAM: The run is on features" in said
    assert "the run has no calibration" in said
    assert re.search(r"page/report.html +\d\.\d MB · \d+ figures · \d+ s", said)
    text = (tmp_path / "page" / "report.html").read_text()
    left_out = ("transitions", "grad-cam")
    assert re.findall(r'<section id="([\w-]+)"', text) == [key for key in SECTIONS if key not in left_out]
    assert 'class="left-out">Grad-CAM: The run is on features' in text
    assert "Its probabilities are not calibrated" in text
    assert "No samples were set aside for validation" in text
    assert (tmp_path / "page" / "attributes.png").is_file()


def test_a_single_level_and_labels_that_are_missing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, (60, 1))
    y[::4] = -1
    np.savez(tmp_path / "flat.npz", x=rng.normal(size=(60, 5)).astype(np.float32), y=y, train=np.arange(60) % 3 > 0)
    run = train(
        TrainArgs(str(tmp_path / "flat.npz"), out=tmp_path / "run", epochs=1, option={"width": 8}, quiet=True, track=False)
    )
    text = report(run, images=0).path.read_text()
    assert "The tree has a single level" in text
    assert "None was asked for (--images 0)." in text
    assert "For " not in text.split("</header>")[0]  # one level cannot disagree


def test_runs_that_cannot_be_reported_on(
    made: Path, embeddings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = train(TrainArgs(str(embeddings), out=tmp_path / "run", epochs=1, option={"width": 12}, quiet=True, track=False))
    with pytest.raises(ConfigError, match=r"its tree \(order 2 › family 4 › species 6\) differs from that of"):
        report(made / "lht", compare=[other])
    with pytest.raises(ConfigError, match="names a run twice"):
        report(made / "lht", compare=[made / "lht"])
    with pytest.raises(RunError, match="no such run directory"):
        report(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no samples in its val part"):
        report(other, split="val")
    with pytest.raises(ConfigError, match="images is -1"):
        report(other, images=-1)
    with pytest.raises(DataError, match="no such file"):
        report(other, attributes=tmp_path / "none.txt")
    (other / "metrics.json").unlink()
    with pytest.raises(RunError, match="has not finished"):
        report(other)
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path / "nowhere")])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("lht: ")
    assert not (other / "report").exists()
