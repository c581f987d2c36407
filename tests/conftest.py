"""What all tests share: a cache of their own, small datasets that are made in a moment, and a browser."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

LEVELS = ("order", "family", "species")
PATHS = [
    ("Auks", "Puffins", "Horned Puffin"),
    ("Auks", "Puffins", "Tufted Puffin"),
    ("Auks", "Guillemots", "Black Guillemot"),
    ("Gulls", "Kittiwakes", "Red-legged Kittiwake"),
    ("Gulls", "Kittiwakes", "Black-legged Kittiwake"),
    ("Gulls", "Terns", "Arctic Tern"),
]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),  # a camera for everybody
]


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The place of a folder for each test. `mktemp` would look through those of all tests before it."""
    root = tmp_path_factory.mktemp("caches")
    return (root / str(i) for i in itertools.count())


@pytest.fixture(autouse=True)
def own_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache; torch keeps to one thread, since tests run side by side."""
    cache = next(caches)
    cache.mkdir()
    monkeypatch.setenv("LHT_CACHE", str(cache))
    torch.set_num_threads(1)
    return cache


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    """See `write_embeddings`."""
    return write_embeddings(tmp_path)


def write_embeddings(folder: Path) -> Path:
    """Features of 6 species that are easy to tell apart, 20 training and 10 test samples each."""
    rng = np.random.default_rng(0)
    families = sorted({path[1] for path in PATHS})
    orders = sorted({path[0] for path in PATHS})
    table = np.array([[i, families.index(f), orders.index(o)] for i, (o, f, _) in enumerate(PATHS)])
    species = np.repeat(np.arange(6), 30)
    file = folder / "birds.npz"
    np.savez(
        file,
        x=(rng.normal(size=(6, 12))[species] * 2 + rng.normal(size=(180, 12))).astype(np.float32),
        y=table[species],
        train=np.arange(180) % 3 > 0,
        levels=np.array(LEVELS[::-1]),
        classes_species=np.array([path[2] for path in PATHS]),
        classes_family=np.array(families),
        classes_order=np.array(orders),
    )
    return file


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """See `write_pictures`."""
    return write_pictures(tmp_path)


def write_pictures(folder: Path) -> Path:
    """A folder tree of small pictures, one colour per species; some lie in the folder of their family."""
    rng = np.random.default_rng(0)
    root = folder / "pictures"
    for i, path in enumerate(PATHS):
        place = root.joinpath(*path)
        place.mkdir(parents=True)
        for j in range(8):
            colour = np.array([40 * i, 255 - 40 * i, (90 * i) % 255])
            noisy = np.clip(colour + rng.normal(0, 20, (24, 28, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save((place.parent if j == 0 else place) / f"{path[2]} {j}.png")
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    if BROWSER is None:
        pytest.skip("no browser to open the page in: install the Debian package chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright, and the Debian package chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()
