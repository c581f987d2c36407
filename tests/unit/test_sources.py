"""What a picture is, wherever it lies; and what adds to the package: sources of data, and datasets known by name."""

from __future__ import annotations

import io
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchlht.data import samples
from torchlht.data import sources as folder_of_sources
from torchlht.data.batches import ImageSet, load
from torchlht.data.named import is_known
from torchlht.data.packing import pack
from torchlht.data.pictures import (
    BytesPicture,
    FilePicture,
    NthInTar,
    PackedPicture,
    Picture,
    TarMember,
    find_problems,
    open_image,
    picture_at,
    states,
)
from torchlht.data.preparing import Preprocess, decode
from torchlht.data.samples import (
    Samples,
    Source,
    label_of,
    lasting_name,
    read_data,
    short_name,
    source_of,
    sources,
    tree_of,
)
from torchlht.errors import DataError, LHTError
from torchlht.hierarchy.reading import Row
from torchlht.hierarchy.tree import Hierarchy
from torchlht.plugins import plugins

SPEC = Preprocess(size=8, resize=10)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache"))


def png(value: int = 0, side: int = 12) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(value).integers(0, 255, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


# ---- pictures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def everywhere(tmp_path: Path) -> dict[str, Picture]:
    """The same picture in a file, in a tar, at an address and in memory."""
    import fsspec

    (tmp_path / "a.png").write_bytes(png())
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "a.png", "a.PNG")
    with tarfile.open(tmp_path / "x.tar") as tar:
        start = tar.getmembers()[0].offset_data
    fsspec.filesystem("memory").pipe("/test-pictures/a.png", png())
    return {
        str(tmp_path / "a.png"): FilePicture(tmp_path / "a.png"),
        f"{tmp_path}/x.tar#{start}+{len(png())}": TarMember(tmp_path / "x.tar", start, len(png())),
        f"{tmp_path}/x.tar#0": NthInTar(tmp_path / "x.tar", 0),
        "memory:/test-pictures/a.png": FilePicture(Path("memory://test-pictures/a.png")),
        "a picture in memory": BytesPicture(png()),
    }


def test_a_picture_is_the_same_wherever_it_lies_and_its_text_is_its_address(everywhere: dict[str, Picture]) -> None:
    expected = decode(Image.open(io.BytesIO(png())), SPEC)
    for address, picture in everywhere.items():
        assert str(picture) == address
        assert picture.read() == png()
        assert torch.equal(decode(picture, SPEC), expected)
        if picture.file:
            assert picture_at(address) == picture == picture_at(Path(address)) == picture_at(picture)
            assert picture.suffix == ".png"
            assert address.endswith(f"/{picture.name}")
            assert torch.equal(decode(address, SPEC), expected)
    assert find_problems(list(everywhere.values())) == []


def test_pictures_are_sent_to_other_processes_and_told_apart(everywhere: dict[str, Picture]) -> None:
    pictures = [*everywhere.values(), PackedPicture(Path("train"), 3), BytesPicture(png(1))]
    assert pickle.loads(pickle.dumps(pictures)) == pictures
    assert len({*pictures, *pickle.loads(pickle.dumps(pictures))}) == len(pictures)


def test_the_state_of_a_picture_changes_with_it_and_a_file_of_many_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.tar").write_bytes(b"1234")
    asked: list[Path] = []
    found = "torchlht.data.pictures.state_of"
    monkeypatch.setattr(found, lambda place: asked.append(place) or (4, len(asked)))
    many = [TarMember(tmp_path / "x.tar", i, 1) for i in range(5)]
    assert list(states(many)) == [(4, 1)] * 5
    assert asked == [tmp_path / "x.tar"]
    one, other, same = states([BytesPicture(b"a"), BytesPicture(b"b"), BytesPicture(b"a", "of another name")])
    assert one == same != other


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("a#1/b.jpg", FilePicture),
        ("b.jpg#x", FilePicture),
        ("b.jpg#3", FilePicture),
        ("b.jpg#3+4", FilePicture),
        ("many#3", PackedPicture),
        ("many#3+4", FilePicture),
        ("x.tar#3", NthInTar),
        ("s3://bucket/x.tar#3+4", TarMember),
    ],
)
def test_an_address_says_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, kind: type[Picture]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many").touch()
    assert type(picture_at(address)) is kind
    assert str(picture_at(address)) == str(Path(address))


def test_a_picture_of_a_tar_that_is_not_there_is_a_problem_and_not_a_crash(tmp_path: Path) -> None:
    pictures = [picture_at(tmp_path / address) for address in ("x.tar#3", "x.tar#512+9")]
    assert [problem.reason for problem in find_problems(pictures)] == ["no such file"] * 2
    for picture in pictures:
        with pytest.raises(DataError, match=r"x\.tar#.*: no such file$"):
            open_image(picture)


# ---- sources -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zipped(Picture):
    """A picture in a zip."""

    file: Path
    inside: str

    @property
    def part(self) -> str:
        return f"#{self.inside}"

    def read(self) -> bytes:
        with zipfile.ZipFile(self.file) as archive:
            return archive.read(self.inside)


def read_zip(place: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> Samples:
    """A zip of FAMILY/SPECIES/….png."""
    with zipfile.ZipFile(place) as archive:
        keys = tuple(sorted(archive.namelist()))
    names = list(levels or ("family", "species"))
    rows = [Row(key, tuple(key.split("/")[:2])) for key in keys]
    tree = hierarchy or tree_of(rows, names, place)
    labels = np.array([label_of(tree, names, row.names, row.where) for row in rows])
    return Samples(place.stem, tree, keys, labels, np.full(len(keys), "train"), tuple(Zipped(place, key) for key in keys))


ZIP = Source("zip", "a zip of pictures", lambda place: place.suffix == ".zip" and place.is_file(), read_zip)
BUILT_IN = ["table", "embeddings", "shards", "folder"]
FILE = """
from {module} import ZIP as SOURCE
"""


@pytest.fixture
def fresh() -> Callable[[], None]:
    """Sources and plugins are found once; look again, now and after the test."""

    def forget() -> None:
        sources.cache_clear()
        plugins.cache_clear()

    yield forget
    forget()


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Callable[[], None]) -> Path:
    """A zip of pictures, and a file among the sources that reads it."""
    file = tmp_path / "birds.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for i, name in enumerate(("Gulls/Ivory Gull/1", "Gulls/Kittiwake/1", "Auks/Puffin/1", "Auks/Puffin/2")):
            archive.writestr(f"{name}.png", png(i))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "zips.py").write_text(FILE.format(module=__name__))
    monkeypatch.setattr(folder_of_sources, "__path__", [*folder_of_sources.__path__, str(tmp_path / "more")])
    fresh()
    yield file
    sys.modules.pop("torchlht.data.sources.zips", None)


def test_a_new_source_is_one_file_and_everything_reads_it(zipped: Path, tmp_path: Path) -> None:
    samples = read_data(zipped)
    assert samples.hierarchy.describe() == "family 2 › species 3"
    assert samples.keys[0] == "Auks/Puffin/1.png"
    assert short_name(str(zipped)) == "birds"
    assert find_problems(samples.images or ()) == []
    pack(samples, tmp_path / "shards", size=10**6)
    packed = read_data(tmp_path / "shards")
    assert packed.keys == samples.keys
    assert [picture.read() for picture in packed.images or ()] == [picture.read() for picture in samples.images or ()]
    before, after = (ImageSet(one.images or (), torch.from_numpy(one.labels), SPEC) for one in (samples, packed))
    for data in (before, after):
        data.in_memory = False  # so that workers decode
    for (x, y), (a, b) in zip(load(before, [[3, 0], [1]], workers=1), load(after, [[3, 0], [1]]), strict=True):
        assert torch.equal(x, a)
        assert torch.equal(y, b)


def test_what_is_read_is_listed_from_the_sources(zipped: Path) -> None:
    zipped.with_suffix(".nothing").touch()
    with pytest.raises(DataError, match=r"birds\.nothing: not data; pass .* a \.csv or \.tsv table, .* a zip of pictures"):
        read_data(zipped.with_suffix(".nothing"))


def test_without_its_file_a_source_is_gone(tmp_path: Path, fresh: Callable[[], None]) -> None:
    fresh()
    (tmp_path / "birds.zip").touch()
    assert source_of(tmp_path / "birds.zip") is None
    assert ZIP not in sources()
    names = [source.name for source in sources()]
    assert [name for name in names if name in BUILT_IN] == BUILT_IN, "in the order in which they are asked"


# ---- plugins -------------------------------------------------------------------------------------------------------


def install(root: Path, group: str, entry: str, code: str) -> None:
    """A package with one entry point, as pip would leave it."""
    info = root / "other_birds-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-birds\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (root / "other_birds.py").write_text(code)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Callable[[], None]) -> Path:
    monkeypatch.syspath_prepend(tmp_path / "packages")
    fresh()
    yield tmp_path / "packages"
    sys.modules.pop("other_birds", None)


def test_another_package_adds_datasets_by_name(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,kind\na.png,s\nb.png,t\n")
    code = f"from pathlib import Path\nDATASETS = {{'gulls': lambda: (Path({str(table)!r}), None)}}\n"
    install(packages, "torchlht.datasets", "birds = other_birds:DATASETS", code)
    assert read_data("gulls").hierarchy.classes == (("s", "t"),)
    assert (lasting_name("gulls"), short_name("gulls")) == ("gulls", "gulls")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gulls").mkdir()
    assert not is_known("gulls"), "a folder comes first"
    assert lasting_name("gulls") == str(tmp_path / "gulls")


def test_another_package_adds_a_source(packages: Path) -> None:
    install(packages, "torchlht.sources", "zip = other_birds:ZIP", f"from {__name__} import ZIP\n")
    assert ZIP in samples.sources()


def test_a_package_that_cannot_be_imported_is_named(packages: Path) -> None:
    install(packages, "torchlht.datasets", "birds = other_birds:DATASETS", "import nowhere_to_be_found")
    with pytest.raises(LHTError, match=r"torchlht\.datasets: birds of other-birds .*No module named 'nowhere_to_be_found'"):
        plugins("torchlht.datasets")


def test_a_group_without_packages_is_empty(packages: Path) -> None:
    assert plugins("torchlht.nothing") == {}
