"""Pictures: opening, checking, turning into tensors and batches, and the contact sheet."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from torchlht.data import batches as loading
from torchlht.data import pictures as images_module
from torchlht.data.batches import FeatureSet, ImageSet, epoch_batches, load, sample_set
from torchlht.data.pictures import FilePicture, Picture, find_problems, images_in, is_image, open_image, picture_at
from torchlht.data.preparing import (
    Preprocess,
    centre_crop,
    decode,
    normalise,
    other_colours,
    paper_preprocess,
    random_crop,
    strong_crop,
)
from torchlht.data.samples import Samples, check_images
from torchlht.errors import ConfigError, DataError
from torchlht.files import cache_dir
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.preview import contact_sheet

RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache"))


def noise(size: tuple[int, int] = (64, 48), seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def red_then_blue(size: tuple[int, int] = (6, 3)) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


def jpeg(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format="JPEG", **options)
    return out.getvalue()


BROKEN = {
    "half.jpg": jpeg(noise())[: len(jpeg(noise())) // 2],
    "last_bytes_gone.jpg": jpeg(noise())[:-40],
    "half_progressive.jpg": jpeg(noise(), progressive=True)[: len(jpeg(noise(), progressive=True)) // 2],
    "text.jpg": b"This is not a picture.\n",
    "empty.jpg": b"",
    "header_only.png": b"\x89PNG\r\n\x1a\n",
}


def dataset(folder: Path, content: dict[str, bytes]) -> Samples:
    """Samples of two classes in turn, one per file."""
    tree = Hierarchy.from_paths([("A",), ("B",)], ["kind"])
    for name, data in content.items():
        (folder / name).write_bytes(data)
    n = len(content)
    labels = (np.arange(n) % 2)[:, None].astype(np.int64)
    return Samples(
        "birds", tree, tuple(content), labels, np.full(n, "train"), images=tuple(FilePicture(folder / name) for name in content)
    )


# ---- opening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_a_picture_is_turned_the_right_way_up(tmp_path: Path, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90° clockwise to show"
    red_then_blue((64, 32)).save(tmp_path / f"a{suffix}", exif=exif)
    image = open_image(tmp_path / f"a{suffix}")
    assert image.size == (32, 64)
    top, bottom = image.getpixel((16, 8)), image.getpixel((16, 56))
    assert isinstance(top, tuple)
    assert isinstance(bottom, tuple)
    assert top[0] > 200 > 60 > top[2], "left becomes top"
    assert bottom[2] > 200 > 60 > bottom[0]


@pytest.mark.parametrize(
    ("mode", "colour", "suffix", "seen"),
    [
        ("RGB", (200, 100, 50), ".png", (200, 100, 50)),
        ("L", 90, ".png", (90, 90, 90)),
        ("L", 90, ".jpg", (90, 90, 90)),
        ("1", 1, ".png", (255, 255, 255)),
        ("LA", (90, 255), ".png", (90, 90, 90)),
        ("RGBA", (200, 100, 50, 255), ".png", (200, 100, 50)),
        ("CMYK", (0, 255, 255, 0), ".jpg", (255, 0, 0)),
        ("CMYK", (0, 255, 255, 0), ".tif", (255, 0, 0)),
    ],
)
def test_every_kind_of_picture_becomes_rgb(
    tmp_path: Path, mode: str, colour: int | tuple[int, ...], suffix: str, seen: tuple[int, int, int]
) -> None:
    path = tmp_path / f"a{suffix}"
    Image.new(mode, (16, 8), colour).save(path)
    image = open_image(path)
    assert (image.mode, image.size) == ("RGB", (16, 8))
    assert np.abs(np.array(image).astype(int) - np.array(seen)).max() <= 3
    assert find_problems([picture_at(path)]) == []


@pytest.mark.parametrize("suffix", [".png", ".gif"])
def test_a_picture_with_a_palette_gets_its_colours(tmp_path: Path, suffix: str) -> None:
    red_then_blue().quantize(4).save(tmp_path / f"a{suffix}")
    image = open_image(tmp_path / f"a{suffix}")
    assert (image.mode, image.getpixel((0, 0)), image.getpixel((5, 0))) == ("RGB", RED, BLUE)


def test_a_palette_with_transparency_opens_without_a_warning(tmp_path: Path) -> None:
    image = red_then_blue().quantize(4)
    image.save(tmp_path / "a.png", transparency=bytes([255, 128, 255, 255]))
    assert open_image(tmp_path / "a.png").size == (6, 3)


def test_sixteen_bits_of_grey_keep_their_shades(tmp_path: Path) -> None:
    shades = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(shades).save(tmp_path / "a.png")
    seen = np.array(open_image(tmp_path / "a.png"))[:, :, 0].astype(int)
    assert len(np.unique(seen)) > 32, "not all white"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("half.jpg", "truncated"),
        ("last_bytes_gone.jpg", "truncated"),
        ("half_progressive.jpg", "truncated"),
        ("text.jpg", "not a readable picture"),
        ("empty.jpg", "not a readable picture"),
        ("header_only.png", "."),
        ("missing.jpg", "no such file"),
    ],
)
def test_a_picture_that_cannot_be_opened_is_told_with_the_reason_and_found_by_the_check(
    tmp_path: Path, name: str, reason: str
) -> None:
    path = tmp_path / name
    if name in BROKEN:
        path.write_bytes(BROKEN[name])
    with pytest.raises(DataError, match=rf"{name}: .*{reason}"):
        open_image(path)
    (problem,) = find_problems([picture_at(path)])
    assert problem.path == str(path)
    assert problem.reason
    assert str(path) not in problem.reason, "the path is told once"


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_the_check_passes_only_what_opens_even_when_the_exif_data_is_damaged(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    noise().save(path, exif=b"Exif\x00\x00this is no exif data")
    problems = find_problems([picture_at(path)])
    try:
        open_image(path)
    except DataError:
        opened = False
    else:
        opened = True
    assert opened == (problems == [])


@pytest.mark.parametrize("size", [(1, 1), (5, 5), (7, 40), (40, 7)])
@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_tiny_pictures_pass_the_check(tmp_path: Path, size: tuple[int, int], suffix: str) -> None:
    noise(size).save(tmp_path / f"a{suffix}")
    assert find_problems([picture_at(tmp_path / f"a{suffix}")]) == []


def test_pictures_are_known_by_their_suffix_and_listed_by_name(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", ".hidden.jpg", "c.txt", "d.jpeg"):
        (tmp_path / name).touch()
    (tmp_path / "folder.jpg").mkdir()
    assert [path.name for path in images_in(tmp_path)] == ["a.png", "b.JPG", "d.jpeg"]
    assert is_image(Path("x.webp"))
    assert not is_image(Path("x.mp4"))


# ---- checking ------------------------------------------------------------------------------------------------------

GOOD = jpeg(noise())


def test_unreadable_pictures_are_refused_with_their_number_the_first_and_a_list(tmp_path: Path) -> None:
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": b"text", "c.jpg": GOOD, "d.jpg": b""})
    with pytest.raises(DataError, match="birds: 2 of 4 pictures cannot be read") as caught:
        check_images(samples, "stop")
    assert f"the first is {tmp_path / 'b.jpg'} (not a readable picture)" in str(caught.value)
    assert "on_error=skip" in str(caught.value)
    listed = cache_dir() / "problems.csv"
    assert str(listed) in str(caught.value)
    rows = list(csv.reader(listed.read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in rows] == ["path", str(tmp_path / "b.jpg"), str(tmp_path / "d.jpg")]
    assert rows[0][1] == "reason"


def test_unreadable_pictures_are_skipped_when_asked(tmp_path: Path) -> None:
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": b"text", "c.jpg": GOOD, "d.jpg": b""})
    kept, problems = check_images(samples, "skip")
    assert kept.keys == ("a.jpg", "c.jpg")
    assert kept.images == (FilePicture(tmp_path / "a.jpg"), FilePicture(tmp_path / "c.jpg"))
    assert kept.labels.tolist() == samples.labels[[0, 2]].tolist()
    assert [Path(problem.path).name for problem in problems] == ["b.jpg", "d.jpg"]


def test_pictures_that_are_missing_are_problems_too(tmp_path: Path) -> None:
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": GOOD})
    (tmp_path / "b.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 2 pictures cannot be read, the first is .*b\.jpg \(no such file\)"):
        check_images(samples, "stop")


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_good_pictures_pass_as_they_are(tmp_path: Path, on_error: str) -> None:
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": GOOD})
    assert check_images(samples, on_error) == (samples, [])


def test_features_need_no_check() -> None:
    tree = Hierarchy.from_paths([("A",), ("B",)], ["kind"])
    x = np.zeros((2, 3), np.float32)
    samples = Samples("x", tree, ("0", "1"), np.array([[0], [1]]), np.full(2, "train"), features=x)
    assert check_images(samples, "stop") == (samples, [])


def test_the_check_is_done_once_and_again_only_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "SETTLED", 0)
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": b"text", "c.jpg": GOOD})
    _, first = check_images(samples, "skip")
    decoded: list[Path | None] = []

    def refuse(picture: Picture) -> str | None:
        decoded.append(picture.file)
        return None

    monkeypatch.setattr(images_module, "_try_decode", refuse)
    _, second = check_images(samples, "skip")
    assert second == first
    assert len(second) == 1
    assert decoded == []

    state = (tmp_path / "c.jpg").stat()
    os.utime(tmp_path / "c.jpg", ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
    check_images(samples, "skip")
    assert tmp_path / "c.jpg" in decoded


def test_a_mended_picture_is_found_mended(tmp_path: Path) -> None:
    samples = dataset(tmp_path, {"a.jpg": GOOD, "b.jpg": b"text"})
    assert len(check_images(samples, "skip")[1]) == 1
    (tmp_path / "b.jpg").write_bytes(GOOD)
    assert check_images(samples, "stop") == (samples, [])


# ---- to tensors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "shape"),
    [((64, 48), (3, 40, 53)), ((48, 64), (3, 53, 40)), ((40, 40), (3, 40, 40)), ((2, 3), (3, 60, 40)), ((1, 1), (3, 40, 40))],
)
def test_decode_resizes_the_shorter_side_and_keeps_the_shape(
    tmp_path: Path, size: tuple[int, int], shape: tuple[int, ...]
) -> None:
    spec = Preprocess(size=32, resize=40)
    noise(size).save(tmp_path / "a.png")
    tensor = decode(tmp_path / "a.png", spec)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.uint8, shape)
    assert torch.equal(decode(str(tmp_path / "a.png"), spec), tensor)
    assert torch.equal(decode(Image.open(tmp_path / "a.png"), spec), tensor)


@pytest.mark.parametrize("size", [(64, 48), (5, 90), (40, 40)])
def test_stretch_makes_a_square_of_everything(size: tuple[int, int]) -> None:
    assert decode(noise(size), Preprocess(size=32, resize=40, stretch=True)).shape == (3, 40, 40)


def test_decode_keeps_channels_rows_and_columns_where_they_belong() -> None:
    tensor = decode(red_then_blue((8, 4)), Preprocess(size=4, resize=4))
    assert tensor.shape == (3, 4, 8)
    assert tensor[:, 0, 0].tolist() == list(RED)
    assert tensor[:, 3, 7].tolist() == list(BLUE)


def test_interpolation_is_as_asked() -> None:
    bilinear, bicubic = (
        decode(noise((20, 20)), Preprocess(size=32, resize=32, interpolation=kind)) for kind in ("bilinear", "bicubic")
    )
    assert not torch.equal(bilinear, bicubic)


def test_the_centre_crop_is_the_middle() -> None:
    spec = Preprocess(size=4, resize=8)
    image = torch.arange(3 * 8 * 10, dtype=torch.uint8).view(3, 8, 10)
    assert torch.equal(centre_crop(image, spec), image[:, 2:6, 3:7])


@given(st.integers(1, 80), st.integers(1, 80), st.booleans(), st.integers(0, 5), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_every_crop_has_the_size_asked_for(width: int, height: int, stretch: bool, padding: int, seed: int) -> None:
    spec = Preprocess(size=16, resize=18, stretch=stretch, padding=padding)
    image = decode(noise((width, height)), spec)
    assert centre_crop(image, spec).shape == (3, 16, 16)
    assert random_crop(image, spec, np.random.default_rng(seed)).shape == (3, 16, 16)


def test_a_strong_crop_is_a_part_at_some_scale_mirrored_half_of_the_time() -> None:
    spec, rng = Preprocess(size=16, resize=32), np.random.default_rng(0)
    ramp = torch.arange(40, dtype=torch.uint8).expand(3, 32, 40)  # grey: colours change brightness and contrast alone
    crops = [strong_crop(ramp, spec, rng).float() for _ in range(200)]
    assert all(crop.shape == (3, 16, 16) for crop in crops)
    slopes = torch.stack([crop[:, :, -1].mean() - crop[:, :, 0].mean() for crop in crops])
    assert 70 < (slopes < 0).sum() < 130
    widths = slopes.abs() / 15 * 16  # times factors of 0.7 to 1.3, twice
    assert 0.49 * 18 < widths.min() < 20 < 38 < widths.max() < 1.7 * 40
    assert torch.equal(strong_crop(ramp, spec, np.random.default_rng(5)), strong_crop(ramp, spec, np.random.default_rng(5)))


@settings(max_examples=20, deadline=None)
@given(st.tuples(st.floats(0.7, 1.3), st.floats(0.7, 1.3), st.floats(0.7, 1.3)))
def test_other_colours_are_as_pixel_by_pixel_in_double_precision(factors: tuple[float, float, float]) -> None:
    image = torch.from_numpy(np.array(noise((7, 5)))).permute(2, 0, 1)
    x = np.clip(image.double().numpy() * factors[0], 0, 255)
    x = np.clip(x.mean() + factors[1] * (x - x.mean()), 0, 255)
    expected = np.array(x)
    for row in range(5):
        for column in range(7):
            grey = sum(x[:, row, column]) / 3
            expected[:, row, column] = [min(max(grey + factors[2] * (value - grey), 0), 255) for value in x[:, row, column]]
    assert np.abs(other_colours(image, *factors).double().numpy() - expected).max() <= 0.51
    assert torch.equal(other_colours(image, 1, 1, 1), image)


def test_random_crops_reach_every_place_and_are_mirrored_half_of_the_time() -> None:
    spec = Preprocess(size=4, resize=6)
    column = torch.arange(6, dtype=torch.uint8)
    image = (column.view(1, 6, 1) * 10 + column.view(1, 1, 6)).expand(3, 6, 6)
    rng = np.random.default_rng(0)
    places, mirrored = set(), 0
    for _ in range(300):
        crop = random_crop(image, spec, rng)
        flipped = bool(crop[0, 0, 0] > crop[0, 0, -1])
        mirrored += flipped
        places.add(int(crop.flip(2)[0, 0, 0] if flipped else crop[0, 0, 0]))
    assert places == {10 * top + left for top in range(3) for left in range(3)}
    assert 110 < mirrored < 190


def test_padding_lets_a_crop_reach_beyond_the_picture() -> None:
    spec = Preprocess(size=8, resize=8, padding=3)
    white = torch.full((3, 8, 8), 255, dtype=torch.uint8)
    rng = np.random.default_rng(0)
    crops = [random_crop(white, spec, rng) for _ in range(50)]
    assert all(crop.shape == (3, 8, 8) for crop in crops)
    assert any((crop == 0).any() for crop in crops)
    assert min(int((crop == 255).sum()) for crop in crops) >= 3 * 5 * 5


def test_normalise_is_per_channel_on_a_scale_of_0_to_1() -> None:
    spec = Preprocess(size=2, resize=2, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    images = torch.stack([torch.zeros(3, 2, 2, dtype=torch.uint8), torch.full((3, 2, 2), 255, dtype=torch.uint8)])
    out = normalise(images, spec)
    assert (out.dtype, out.shape) == (torch.float32, (2, 3, 2, 2))
    assert torch.allclose(out[0, :, 0, 0], torch.tensor([-1.0, -1.0, 0.0]))
    assert torch.allclose(out[1, :, 0, 0], torch.tensor([1.0, 3.0, 0.5]))


def test_a_preprocess_comes_back_from_its_dictionary() -> None:
    spec = Preprocess(size=32, resize=36, mean=(0.1, 0.2, 0.3), interpolation="bicubic", stretch=True, padding=4)
    assert Preprocess.from_dict(spec.to_dict()) == spec
    assert isinstance(spec.to_dict()["mean"], list), "plain values for YAML"


def test_another_image_size_keeps_the_margin_in_proportion() -> None:
    spec = Preprocess(size=224, resize=256)
    assert (spec.resized(112).size, spec.resized(112).resize) == (112, 128)
    with pytest.raises(ConfigError, match="image_size is 4: it must be at least 8"):
        spec.resized(4)


def test_the_papers_preprocessing() -> None:
    spec = paper_preprocess(448)
    assert (spec.size, spec.resize, spec.stretch, spec.padding) == (448, 550, True, 8)
    assert spec.mean == spec.std == (0.5, 0.5, 0.5)
    assert (paper_preprocess(64).size, paper_preprocess(64).resize) == (64, 64)


# ---- batches -------------------------------------------------------------------------------------------------------

SPEC = Preprocess(size=16, resize=24)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = []
    for i in range(6):
        path = tmp_path / f"{i}.png"
        noise((30, 26), seed=i).save(path)
        found.append(path)
    return found


def test_augmentation_depends_on_seed_epoch_and_sample_alone(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(6).view(6, 1)
    data = ImageSet(paths, labels, SPEC, augment="standard")
    data.set_epoch(seed=1, epoch=2)
    whole, y = data.__getitems__([0, 1, 2, 3, 4, 5])
    assert y.tolist() == [[0], [1], [2], [3], [4], [5]]

    other = ImageSet(paths, labels, SPEC, augment="standard")
    other.set_epoch(seed=1, epoch=2)
    assert torch.equal(other.__getitems__([4])[0][0], whole[4])
    assert torch.equal(other.__getitems__([5, 2])[0], whole[[5, 2]])

    monkeypatch.setattr(loading, "RAM_LIMIT", 0)
    from_disk = ImageSet(paths, labels, SPEC, augment="standard")
    assert not from_disk.in_memory
    from_disk.set_epoch(seed=1, epoch=2)
    assert torch.equal(from_disk.__getitems__([3, 0])[0], whole[[3, 0]])

    for seed, epoch in [(1, 3), (2, 2)]:
        data.set_epoch(seed=seed, epoch=epoch)
        assert not torch.equal(data.__getitems__(range(6))[0], whole)
    data.set_epoch(seed=1, epoch=2)
    assert torch.equal(data.__getitems__(range(6))[0], whole)


def test_without_augmentation_every_epoch_sees_the_same_middle(paths: list[Path]) -> None:
    data = ImageSet(paths, torch.zeros(6, 2, dtype=torch.int64), SPEC)
    before, y = data.__getitems__([2, 0])
    data.set_epoch(seed=7, epoch=9)
    assert torch.equal(data.__getitems__([2, 0])[0], before)
    expected = torch.stack([centre_crop(decode(paths[i], SPEC), SPEC) for i in (2, 0)])
    assert torch.equal(before, expected)
    assert torch.equal(next(load(data, [[2, 0]]))[0], normalise(expected, SPEC)), "a network gets them normalised"
    assert (before.shape, y.shape, len(data)) == ((2, 3, 16, 16), (2, 2), 6)


def test_small_collections_are_decoded_once(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data = ImageSet(paths, torch.zeros(6, 1, dtype=torch.int64), SPEC)
    first = data.__getitems__([1])[0]
    monkeypatch.setattr(loading, "decode", lambda path, spec: pytest.fail("decoded again"))
    assert torch.equal(data.__getitems__([1])[0], first)


def test_features_are_fetched_by_position() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    data = sample_set(x, None, np.array([[0], [1], [2], [3]]), None, augment="standard")
    assert isinstance(data, FeatureSet)
    data.set_epoch(seed=1, epoch=1)
    batch, y = data.__getitems__([3, 1])
    assert batch.tolist() == [[6.0, 7.0], [2.0, 3.0]]
    assert y.tolist() == [[3], [1]]
    assert len(data) == 4


def test_pictures_become_an_image_set(paths: list[Path]) -> None:
    data = sample_set(None, paths, np.zeros((6, 2), np.int64), SPEC, augment="standard")
    assert isinstance(data, ImageSet)
    assert data.augment


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 99), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_the_batches_of_an_epoch_are_a_permutation(n: int, size: int, seed: int, epoch: int) -> None:
    batches = epoch_batches(n, size, seed=seed, epoch=epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(n))
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(batches)
    assert epoch_batches(n, size, seed=seed, epoch=epoch) == batches


@pytest.mark.parametrize(("n", "size", "lengths"), [(10, 4, [4, 4]), (8, 4, [4, 4]), (3, 4, [3]), (5, 4, [4]), (0, 4, [])])
def test_drop_last_drops_a_short_last_batch_but_never_the_only_one(n: int, size: int, lengths: list[int]) -> None:
    batches = epoch_batches(n, size, seed=0, epoch=0, drop_last=True)
    assert [len(batch) for batch in batches] == lengths


def test_a_weight_is_how_often_a_sample_comes_on_average() -> None:
    weights = np.array([0.0, 2.0, 0.25, 1.0])
    counts = np.zeros((400, 4))
    for epoch in range(400):
        for batch in epoch_batches(4, 2, seed=0, epoch=epoch, weights=weights):
            np.add.at(counts[epoch], batch, 1)
    assert (counts[:, [0, 1, 3]] == weights[[0, 1, 3]]).all()  # whole numbers are exact
    assert set(counts[:, 2]) == {0, 1}
    assert abs(counts[:, 2].mean() - 0.25) < 0.07


def test_the_order_changes_with_the_seed_and_the_epoch() -> None:
    orders = {tuple(epoch_batches(30, 30, seed=seed, epoch=epoch)[0]) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_load_fetches_the_batches_in_their_order() -> None:
    x = torch.arange(10.0).view(10, 1)
    data = FeatureSet(x, torch.arange(10).view(10, 1))
    batches = [[3, 1], [9, 0, 5], [2]]
    seen = [(a.ravel().tolist(), b.ravel().tolist()) for a, b in load(data, batches)]
    assert seen == [([3.0, 1.0], [3, 1]), ([9.0, 0.0, 5.0], [9, 0, 5]), ([2.0], [2])]


# ---- contact sheet -------------------------------------------------------------------------------------------------


def drawn(folder: Path, paths: list[tuple[str, ...]], levels: tuple[str, ...], per_class: int = 3) -> Samples:
    tree = Hierarchy.from_paths(paths, levels)
    fine = np.repeat(np.arange(tree.sizes[0]), per_class)
    labels = np.full((len(fine), len(tree)), -1)
    labels[:, 0] = fine
    files = []
    for i in range(len(fine)):
        files.append(folder / f"{i}.png")
        Image.new("RGB", (20 + i, 30), RED).save(files[-1])
    keys = tuple(path.name for path in files)
    return Samples("drawn", tree, keys, tree.fill(labels), np.full(len(fine), "train"), images=tuple(map(FilePicture, files)))


THREE = [(f"order {i // 4}", f"family {i // 2}", f"Möwe {i}") for i in range(8)]


@pytest.mark.parametrize(
    ("paths", "levels"),
    [(THREE, ("order", "family", "species")), ([(path[2],) for path in THREE], ("species",))],
    ids=["three levels", "one level"],
)
def test_the_contact_sheet_shows_every_picture(tmp_path: Path, paths: list[tuple[str, ...]], levels: tuple[str, ...]) -> None:
    samples = drawn(tmp_path, paths, levels)
    out = tmp_path / "sheets" / "sheet.png"
    contact_sheet(samples, out, per_class=3)
    with Image.open(out) as image:
        assert image.format == "PNG"
        pixels = np.array(image.convert("RGB"))
    height, width, _ = pixels.shape
    assert 3 * 72 <= width <= 4 * (3 * 80 + 24) + 24
    assert 8 * 72 <= height <= 8 * 150
    assert (pixels == RED).all(axis=2).sum() == 24 * 72 * 72, "24 tiles, whole and apart"
    assert [entry.name for entry in out.parent.iterdir()] == ["sheet.png"]


def test_the_contact_sheet_shows_no_more_than_asked_and_none_to_be_skipped(tmp_path: Path) -> None:
    samples = drawn(tmp_path, THREE, ("order", "family", "species"))
    assert samples.images is not None
    contact_sheet(samples, tmp_path / "sheet.png", per_class=2, skip={str(samples.images[0]), str(samples.images[1])})
    with Image.open(tmp_path / "sheet.png") as image:
        pixels = np.array(image)
    assert (pixels == RED).all(axis=2).sum() == 15 * 72 * 72


@pytest.mark.parametrize("classes", [1, 6, 12, 13, 25, 27])
def test_the_contact_sheet_has_room_for_any_number_of_classes(tmp_path: Path, classes: int) -> None:
    paths = [(f"f{i // 3}", f"s{i}") for i in range(classes)]
    contact_sheet(drawn(tmp_path, paths, ("family", "species"), per_class=1), tmp_path / "sheet.png", per_class=2)
    with Image.open(tmp_path / "sheet.png") as image:
        pixels = np.array(image)
    assert (pixels == RED).all(axis=2).sum() == classes * 72 * 72


def test_a_contact_sheet_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    samples = drawn(tmp_path, THREE, ("order", "family", "species"))
    (tmp_path / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"0\.png"):
        contact_sheet(samples, tmp_path / "out" / "sheet.png")
    assert not (tmp_path / "out").exists()
