"""The scripts of a web page against what they stand for: Pillow, `open_image`, `Predictor.predict`, `csv_text`."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from torchlht.answer.calibration import Calibration
from torchlht.answer.exported.read import Exported
from torchlht.answer.named import Named, Restriction, Wanted, name_all
from torchlht.answer.plain import as_dict
from torchlht.commands.predict import print_csv
from torchlht.data.pictures import open_bytes, to_rgb
from torchlht.data.preparing import Preprocess, centre_crop, decode, normalise
from torchlht.hierarchy.tree import Hierarchy
from torchlht.serve.page import SCRIPTS, TALL_FIRST, script_text, sorted_bytes
from trees import random_hierarchy

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
HELPERS = """
const fromText = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const toText = bytes => { let s = ""; for (const b of bytes) s += String.fromCharCode(b); return btoa(s); };
"""


@pytest.fixture(scope="module")
def scripts(browser: Any) -> Iterator[Any]:
    """An empty page with all scripts of a web page but the last, which needs its elements."""
    page = browser.new_page()
    own = script_text().partition("// The page: what people do with it")[0]
    assert own.count("\n// ") >= len(SCRIPTS) - 1
    page.add_script_tag(content=own + HELPERS)
    yield page
    page.close()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def noise(rng: np.random.Generator, width: int, height: int, channels: int = 3) -> np.ndarray[Any, Any]:
    return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)


# ---- resizing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((1, 1), (8, 8)),
        ((7, 501), (9, 640)),
        ((333, 97), (129, 41)),
        ((64, 48), (64, 31)),
        ((50, 40), (21, 40)),
        ((41, 167), (36, 36)),
        ((13, 5), (300, 257)),
    ],
)
def test_resizing_gives_the_bytes_of_pillow(
    scripts: Any, source: tuple[int, int], target: tuple[int, int], interpolation: str
) -> None:
    rng = np.random.default_rng(sum(source))
    pixels = noise(rng, *source, 4)
    pixels[: max(source[1] // 3, 1)] = rng.choice([0, 255], (max(source[1] // 3, 1), source[0], 4))  # overshoots are clipped
    wanted = np.asarray(Image.fromarray(pixels[:, :, :3]).resize(target, FILTERS[interpolation]))
    call = "a => toText(resized(fromText(a.data), ...a.source, 4, a.target, a.part, a.how, a.tall))"
    given = {"data": text(pixels.tobytes()), "source": source, "target": target, "how": interpolation, "tall": TALL_FIRST}
    for part in ([0, 0, *target], [target[0] // 3, target[1] // 4, (target[0] + 1) // 2, (target[1] + 1) // 3]):
        found = np.frombuffer(base64.b64decode(scripts.evaluate(call, {**given, "part": part})), np.uint8)
        left, top, wide, high = part
        np.testing.assert_array_equal(found.reshape(high, wide, 3), wanted[top : top + high, left : left + wide])


@pytest.mark.parametrize(
    "spec",
    [
        Preprocess(32, 37),
        Preprocess(32, 40, interpolation="bicubic", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.5)),
        Preprocess(32, 36, stretch=True),
        Preprocess(40, 16),  # the crop is larger than the resized side
    ],
)
@pytest.mark.parametrize("size", [(41, 67), (90, 33), (32, 32), (37, 37), (75, 50)])
def test_the_networks_input_is_that_of_lht_predict(scripts: Any, spec: Preprocess, size: tuple[int, int]) -> None:
    image = Image.fromarray(noise(np.random.default_rng(size[0]), *size))
    wanted = normalise(centre_crop(decode(image, spec), spec)[None], spec)[0]
    png = io.BytesIO()
    image.save(png, "PNG")
    call = "async a => [...standardised(seen(await decoded(new Blob([fromText(a.png)])), a.spec), a.spec)]"
    found = torch.tensor(
        scripts.evaluate(call, {"png": text(png.getvalue()), "spec": {**spec.to_dict(), "tall_first": TALL_FIRST}})
    )
    torch.testing.assert_close(found.view(3, spec.size, spec.size), wanted, rtol=0, atol=1e-6)


# ---- decoding --------------------------------------------------------------------------------------------------------


def pixels_of(scripts: Any, content: bytes) -> np.ndarray[Any, Any]:
    call = "async a => { const i = await decoded(new Blob([fromText(a)])); return [i.width, i.height, toText(i.data)]; }"
    width, height, data = scripts.evaluate(call, text(content))
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[:, :, :3].astype(int)


def opened(content: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(to_rgb(open_bytes(content))).astype(int)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_pictures_are_turned_as_pillow_turns_them(scripts: Any, kind: str, orientation: int) -> None:
    image = Image.fromarray(noise(np.random.default_rng(0), 6, 4)).resize((48, 32), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = orientation
    written = io.BytesIO()
    image.save(
        written, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "JPEG" else {})
    )
    found, wanted = pixels_of(scripts, written.getvalue()), opened(written.getvalue())
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= (2 if kind == "JPEG" else 0)


def test_an_orientation_in_xmp_counts_where_exif_has_none(scripts: Any) -> None:
    image = Image.fromarray(noise(np.random.default_rng(0), 6, 4)).resize((48, 32), Image.Resampling.BICUBIC)
    written = io.BytesIO()
    image.save(written, "JPEG", quality=95, xmp=b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>')
    found, wanted = pixels_of(scripts, written.getvalue()), opened(written.getvalue())
    assert found.shape == wanted.shape == (48, 32, 3)
    assert np.abs(found - wanted).max() <= 2


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1", "I;16"])
def test_transparency_palettes_and_16_bits_are_within_one_level(scripts: Any, mode: str) -> None:
    rng, written = np.random.default_rng(1), io.BytesIO()
    more: dict[str, Any] = {}
    if mode == "I;16":
        image = Image.fromarray(rng.integers(0, 2**16, (9, 11), dtype=np.uint16))
    elif mode == "P":
        image = Image.fromarray(noise(rng, 11, 9)).quantize(16)
        more = {"transparency": 3}
    else:
        image = Image.fromarray(noise(rng, 11, 9, 4)).convert(mode)
    image.save(written, "PNG", **more)
    assert np.abs(pixels_of(scripts, written.getvalue()) - opened(written.getvalue())).max() <= 1


def test_colour_profiles_are_ignored_as_pillow_ignores_them(scripts: Any) -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    written = io.BytesIO()
    Image.fromarray(noise(np.random.default_rng(2), 11, 9)).save(written, "PNG", icc_profile=profile)
    np.testing.assert_array_equal(pixels_of(scripts, written.getvalue()), opened(written.getvalue()))


@pytest.mark.parametrize(
    "content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + bytes(30), b"\xff\xd8\xff\xe1\xff\xffExif\0\0II*\0"]
)
def test_what_is_no_picture_is_refused_in_words(scripts: Any, content: bytes) -> None:
    call = "a => decoded(new Blob([fromText(a)])).then(() => 'read', error => error.message)"
    assert scripts.evaluate(call, text(content)) == "this browser cannot read it as a picture"


def test_a_picture_too_long_for_its_width_is_refused(scripts: Any) -> None:
    written = io.BytesIO()
    Image.new("RGB", (300, 3)).save(written, "PNG")
    call = "a => decoded(new Blob([fromText(a)])).then(() => 'read', error => error.message)"
    assert scripts.evaluate(call, text(written.getvalue())) == "read"
    written = io.BytesIO()
    Image.new("RGB", (301, 3)).save(written, "PNG")
    assert scripts.evaluate(call, text(written.getvalue())) == "it is too long for its width"


# ---- answers ---------------------------------------------------------------------------------------------------------


class Told(Exported):
    """An exported model that gives these outputs."""

    def __init__(self, metadata: dict[str, Any], outputs: Sequence[Tensor]) -> None:
        super().__init__(metadata, "test")
        self.outputs = outputs

    def run(self, x: Tensor) -> Sequence[Tensor]:
        return self.outputs


def told(seed: int, tree: Hierarchy, rule: str, kind: str, *, novelty: bool, count: int = 12) -> Told:
    """A model that says something random."""
    rng = np.random.default_rng(seed)
    raw = [torch.from_numpy(rng.normal(0, 3, (count, size)).astype(np.float32)) for size in tree.sizes]
    levels = [torch.log_softmax(x, 1) if kind == "softmax" else torch.nn.functional.logsigmoid(x) for x in raw]
    temperatures = [1.0, *(round(float(t), 3) for t in rng.uniform(0.5, 2, len(tree) - 1))]
    calibration = Calibration(tuple(temperatures), (50,) * len(tree), (kind,) * len(tree))  # type: ignore[arg-type]
    far = {
        "alarms": 0.05,
        "weights": rng.uniform(0.1, 1, (len(tree), 2)).tolist(),
        "references": np.sort(rng.normal(1, 0.5, (len(tree), 40))).tolist(),
    }
    metadata = {
        **{"format": 3, "hierarchy": tree.to_dict(), "preprocess": None, "calibration": calibration.to_dict(tree)},
        **{"temperatures": temperatures, "kinds": [kind] * len(tree), "rule": rule, "own_rule": rule, "threshold": None},
        **{"input": {"kind": "features", "shape": ["batch", 4]}, "novelty": far if novelty else None},
    }
    distance = [torch.from_numpy(rng.normal(1, 1, count).astype(np.float32))] if novelty else []
    return Told(metadata, [*levels, *distance])


def in_python(model: Told, asked: Wanted, only: Sequence[str], exclude: Sequence[str]) -> list[Any]:
    """What `lht predict` finds."""
    count = len(model.outputs[0])
    said = model.look(torch.zeros(count, 4))
    restriction = Restriction.parse(model.hierarchy, only, exclude)
    far = model.novelty.as_far(said) if model.novelty else None
    return name_all(
        model.decided(said, restriction=restriction),
        model.hierarchy,
        [f"picture {i}" for i in range(count)],
        3,
        rule=model.rule,
        calibration=model.calibration,
        restricted=restriction is not None,
        as_far=far,
    )


def given(model: Told, asked: Wanted, only: Sequence[str], exclude: Sequence[str]) -> dict[str, Any]:
    """The same question for the page."""
    about = {**model.metadata, "calibrated": True, "rule": model.rule}
    outputs = [[one[i].reshape(-1).tolist() for one in model.outputs] for i in range(len(model.outputs[0]))]
    how = {"threshold": asked.threshold, "promise": asked.promise, "top": 3}
    return {"about": about, "outputs": outputs, "how": how, "only": list(only), "exclude": list(exclude)}


ANSWERS = """a => {
  const tree = treeOf(a.about.hierarchy), allowed = allowedBy(tree, a.only, a.exclude);
  return a.outputs.map((one, i) => answered(`picture ${i}`, one, a.about, tree, { ...a.how, allowed }));
}"""


def untied(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates without the labels of those that are as probable as another one, or the last."""
    shares = [one["probability"] for one in candidates]
    alone = [all(abs(p - q) > 1e-5 for j, q in enumerate(shares) if j != i) for i, p in enumerate(shares)]
    last = len(candidates) - 1
    return [one if alone[i] and i < last else {**one, "label": "", "level": ""} for i, one in enumerate(candidates)]


def assert_like(found: Any, wanted: Any, where: str = "") -> None:
    """The same keys, texts and lengths, and numbers that are nearly the same."""
    if where.endswith(("candidates", "runners_up")):  # classes of the same probability are in any order, also beyond the last
        found, wanted = untied(found), untied(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key in wanted:
            assert_like(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, pair in enumerate(zip(found, wanted, strict=True)):
            assert_like(*pair, f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=1e-4, abs_tol=1e-6), (where, found, wanted)
    else:
        assert found == wanted, where


@pytest.mark.parametrize("novelty", [False, True])
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
@pytest.mark.parametrize("rule", ["path", "backtrack", "top_down", "crm"])
def test_answers_are_those_of_lht_predict(scripts: Any, rule: str, kind: str, novelty: bool) -> None:
    for seed, sizes in enumerate([(9, 4, 2), (12, 5), (11, 6, 3, 2)]):
        tree = random_hierarchy(np.random.default_rng(seed), sizes)
        model = told(seed, tree, rule, kind, novelty=novelty)
        leaf, other = tree.classes[0][0], tree.classes[0][-1]
        top = f"{tree.levels[-1]}/{tree.classes[-1][tree.ancestors(len(tree) - 1)[1]]}"
        cases: list[tuple[Wanted, list[str], list[str]]] = [
            (Wanted(), [], []),
            (Wanted(0.6, "confidence 0.6"), [], []),
            (Wanted(0.5, "confidence 0.5"), [f"{tree.levels[0]}/{leaf}", top], []),
            (Wanted(0.3, "confidence 0.3"), [], [f"{tree.levels[0]}/{other}"]),
        ]
        for case in cases:
            wanted = [as_dict(named, case[0]) for named in in_python(model, *case)]
            found = scripts.evaluate(ANSWERS, given(model, *case))
            assert_like(found, wanted)


def ragged() -> Hierarchy:
    """Three levels; two branches end early, and two classes skip a level."""
    rows = [("A", "a", "x"), ("A", "a", "y"), ("A", None, "z"), ("A", None, "v"), ("B", "b", None), ("C", None, None)]
    return Hierarchy.from_paths(rows, ("order", "family", "species"))


@pytest.mark.parametrize("rule", ["path", "backtrack", "top_down", "crm"])
def test_where_a_branch_ends_answers_are_those_of_lht_predict(scripts: Any, rule: str) -> None:
    model = told(2, ragged(), rule, "softmax", novelty=False, count=40)
    for threshold in (0.0, 0.3, 0.6, 0.9):
        asked = Wanted(threshold, f"confidence {threshold:g}")
        wanted = [as_dict(named, asked) for named in in_python(model, asked, [], ["b"])]
        found = scripts.evaluate(ANSWERS, given(model, asked, [], ["b"]))
        assert_like(found, wanted)
    assert {one["answer"]["ends"] for one in wanted} == {False, True}


def test_where_a_branch_ends_csv_is_that_of_lht_predict(scripts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Wanted(0.4, "confidence 0.4")
    model = told(5, ragged(), "path", "softmax", novelty=False, count=20)
    found = [replace_top(named) for named in in_python(model, asked, [], [])]
    print_csv(found, asked)
    call = f"a => csvOf(({ANSWERS})({{...a, how: {{...a.how, top: 1}}}}), treeOf(a.about.hierarchy))"
    table = scripts.evaluate(call, given(model, asked, [], []))
    names = [[cell for i, cell in enumerate(line.split(",")) if i in (0, 1, 2, 4, 6, 8, 10)] for line in table.splitlines()]
    wanted = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert names == [[row[i] for i in (0, 1, 2, 4, 6, 8, 10)] for row in wanted]
    assert {row[-1] for row in names} >= {"ends_at", "family", "order", ""}


def replace_top(named: Named) -> Named:
    """An answer with one candidate per level."""
    levels = tuple(dataclasses.replace(level, candidates=level.candidates[:1]) for level in named.levels)
    return dataclasses.replace(named, levels=levels)


EVIL = ["=1+1", "-2", "@x", "a,b", 'say "x"', "two\nlines", "\x1b[2J", "'=2", "+49 30", "\u202eback", "plain"]


def test_csv_is_that_of_lht_predict(scripts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tree = Hierarchy(levels=("species", "=family"), classes=[EVIL, ["-A", "B"]], parents=[[0, 1] * 5 + [0]])
    for asked in (Wanted(), Wanted(0.5, "confidence 0.5")):
        model = told(5, tree, "path", "softmax", novelty=True, count=30)
        print_csv(in_python(model, asked, [], []), asked)
        call = f"a => csvOf(({ANSWERS})({{...a, how: {{...a.how, top: 1}}}}), treeOf(a.about.hierarchy))"
        found, wanted = scripts.evaluate(call, given(model, asked, [], [])), capsys.readouterr().out
        wanted = wanted.replace(",species_2,species_probability_2", "")  # `top` is 3 in Python
        assert found.splitlines()[0].startswith("file,")
        rows = [line.split(",")[0] for line in found.splitlines()]
        assert len(rows) >= 31
        for name in EVIL:
            assert scripts.evaluate("a => cell(a)", name) == wanted_cell(name)


def wanted_cell(name: str) -> str:
    from torchlht.console import readable
    from torchlht.files import csv_text

    return csv_text([[readable(name)]]).removesuffix("\n")


def test_names_in_a_list_are_found_at_any_level_or_refused_in_words(scripts: Any) -> None:
    tree = Hierarchy(
        levels=("species", "family"), classes=[["a, b", "Tern", "Auk", "Gull"], ["Auk", "Birds"]], parents=[[1, 1, 0, 1]]
    )
    call = """a => {
      const tree = treeOf(a.tree);
      try { return allowedBy(tree, namesIn(a.only, tree), namesIn(a.not, tree)); } catch (error) { return error.message; }
    }"""

    def allowed(only: str, out: str = "") -> Any:
        return scripts.evaluate(call, {"tree": tree.to_dict(), "only": only, "not": out})

    assert allowed("") is None
    assert allowed("a, b\n\n Tern ") == [True, True, False, False]
    assert allowed("Gull, Tern") == [False, True, False, True]
    assert allowed("family/Birds", "Gull") == [True, True, False, False]
    assert allowed("Auk") == [False, False, True, False]  # one branch, as an only child has its parent's name
    assert allowed("Swan") == "no class is called “Swan”"
    assert allowed("Gull", "Gull") == "this leaves no possible class"


def test_bytes_come_back_in_order(scripts: Any) -> None:
    content = np.random.default_rng(0).integers(0, 256, 1003, dtype=np.uint8).tobytes()
    for width in (1, 2, 4):
        call = "a => toText(unsorted(fromText(a.data), a.width))"
        found = scripts.evaluate(call, {"data": text(sorted_bytes(content, width)), "width": width})
        assert base64.b64decode(found) == content
