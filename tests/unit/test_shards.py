"""Shards: packing, addresses, reading with and without an index, the order of streaming, what the reader holds."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from torchlht import DataError, Hierarchy, read_data
from torchlht.cli import main
from torchlht.data import batches
from torchlht.data.batches import LANES, ImageSet, ShardReader, lanes_of, load, lying, set_batches, stream_batches, workers_for
from torchlht.data.packing import pack, parse_size
from torchlht.data.pictures import TarMember, as_url, find_problems, open_image, picture_at
from torchlht.data.preparing import Preprocess
from torchlht.data.sources.shards import expand_braces, is_shards
from torchlht.errors import ConfigError
from torchlht.learn.options import TrainArgs

LEVELS = ["order", "family", "species"]


@pytest.fixture
def packed(pictures: Path, tmp_path: Path) -> Path:
    pack(read_data(pictures, levels=LEVELS), tmp_path / "shards", per_shard=10)
    return tmp_path / "shards"


def tars(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tar"))


def write_tar(file: Path, members: dict[str, bytes]) -> Path:
    file.parent.mkdir(exist_ok=True)
    with tarfile.open(file, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file


def png(colour: int = 0) -> bytes:
    text = io.BytesIO()
    Image.new("RGB", (9, 8), (colour, 0, 0)).save(text, format="PNG")
    return text.getvalue()


def about(family: str, species: str | None, **more: object) -> bytes:
    return json.dumps({"labels": {"family": family, "species": species}, **more}).encode()


# ---- packing -------------------------------------------------------------------------------------------------------


def test_shards_are_plain_webdataset_tars_with_the_files_as_they_were(pictures: Path, packed: Path) -> None:
    seen = {}
    for file in tars(packed):
        with tarfile.open(file) as tar:
            members = tar.getmembers()
            for picture, labels in zip(members[::2], members[1::2], strict=True):  # side by side
                key, _, end = picture.name.partition(".")
                assert labels.name == f"{key}.json"
                assert end == "png"
                assert "/" not in key
                written = json.load(tar.extractfile(labels))
                seen[key] = written["key"]
                assert tar.extractfile(picture).read() == (pictures / written["key"]).read_bytes()
                assert list(written["labels"]) == LEVELS
                assert (written["labels"]["species"] is None) == (written["key"].count("/") == 2)
    assert len(seen) == len(set(seen.values())) == 48


def test_packed_samples_are_the_samples_that_were_packed_in_their_order(pictures: Path, packed: Path) -> None:
    before, after = read_data(pictures, levels=LEVELS), read_data(packed)
    assert (after.keys, after.hierarchy, after.name) == (before.keys, before.hierarchy, "shards")
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.split, before.split)
    for a, b in zip(before.images, after.images, strict=True):
        np.testing.assert_array_equal(np.asarray(open_image(a)), np.asarray(open_image(b)))


def test_packing_twice_gives_the_same_bytes_and_each_shard_is_a_mix(pictures: Path, tmp_path: Path, packed: Path) -> None:
    again = tmp_path / "again"
    main(["data", "pack", str(pictures), "--out", str(again), "--per-shard", "10", "--levels", ",".join(LEVELS)])
    files = sorted(path.name for path in packed.iterdir())
    assert files == ["hierarchy.json", "index.json", *(f"shards-{i:06d}.tar" for i in range(5))]
    assert all((packed / name).read_bytes() == (again / name).read_bytes() for name in files)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
    listed = json.loads((packed / "index.json").read_text())["shards"]
    assert [shard["samples"] for shard in listed] == [10, 10, 10, 10, 8]
    assert all(len({label[2] for label in shard["labels"]}) == 2 for shard in listed)


def test_splits_have_shards_of_their_own_and_sizes_are_kept_to(pictures: Path, tmp_path: Path) -> None:
    rows = [
        f"{p},{p.parent.name},{'test' if i % 4 == 0 else 'train'}" for i, p in enumerate(sorted(pictures.rglob("*/*/*/*.png")))
    ]
    (tmp_path / "birds.csv").write_text("\n".join(["path,species,split", *rows]))
    samples = read_data(tmp_path / "birds.csv")
    shards = pack(samples, tmp_path / "out", size=30_000)
    listed = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    assert [len(set(shard["splits"])) for shard in listed] == [1] * len(shards)
    assert len(shards) > 3
    assert all(shard["sizes"][0] + shard["offsets"][-1] < 34_000 for shard in listed)
    np.testing.assert_array_equal(read_data(tmp_path / "out").split, samples.split)


def test_shards_can_be_packed_again_and_names_that_say_nothing_get_an_end(packed: Path, tmp_path: Path) -> None:
    pack(read_data(packed), tmp_path / "again", per_shard=20)
    assert read_data(tmp_path / "again").keys == read_data(packed).keys
    for name in ("a.b/x.dat", "a.b/é ü", "c/x.dat"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(png())
    (tmp_path / "t.csv").write_text("path,species\na.b/x.dat,s\na.b/é ü,s\nc/x.dat,t\n")
    [file] = pack(read_data(tmp_path / "t.csv"), tmp_path / "odd")
    with tarfile.open(file) as tar:
        names = {name for name in tar.getnames() if not name.endswith(".json")}
    assert names == {"0000000-a_b_x.png", "0000001-a_b.png", "0000002-c_x.png"}


def test_sizes_in_words() -> None:
    assert [parse_size(text) for text in ("100MB", "1.5 GB", "512KiB", "2000")] == [10**8, 15 * 10**8, 2**19, 2000]
    for wrong in ("", "many", "10 parsecs", "0MB"):
        with pytest.raises(ConfigError, match="size is"):
            parse_size(wrong)


# ---- addresses and patterns ----------------------------------------------------------------------------------------


def test_braces() -> None:
    assert expand_braces("x-{08..11}.tar") == ["x-08.tar", "x-09.tar", "x-10.tar", "x-11.tar"]
    assert expand_braces("{a,b}-{0..1}") == ["a-0", "a-1", "b-0", "b-1"]
    assert expand_braces("plain") == ["plain"]


def test_an_address_survives_being_a_path() -> None:
    assert as_url(Path("s3://bucket/birds/x.tar#512+90")) == "s3://bucket/birds/x.tar#512+90"
    assert as_url("/data/birds") is as_url("C:/birds") is as_url("file:///data") is None


def test_a_picture_by_its_number(packed: Path) -> None:
    file = tars(packed)[1]
    listed = json.loads((packed / "index.json").read_text())["shards"][1]
    for n in (0, 7):
        by_place = TarMember(file, listed["offsets"][n], listed["sizes"][n])
        assert (np.asarray(open_image(Path(f"{file}#{n}"))) == np.asarray(open_image(by_place))).all()
    with pytest.raises(DataError, match="no picture 10; it holds only 10"):
        open_image(Path(f"{file}#10"))


def test_some_of_the_shards_and_another_tree(packed: Path) -> None:
    some = read_data(f"{packed}/shards-00000{{1..2}}.tar")
    assert len(some) == 20
    assert {picture.file.name for picture in some.images} == {"shards-000001.tar", "shards-000002.tar"}
    assert len(read_data(packed / "*.tar")) == len(read_data(f"file://{packed}")) == 48
    two = read_data(packed, levels=["order", "species"])
    assert two.hierarchy.levels == ("species", "order")
    assert two.labels.shape == (48, 2)
    renumbered = Hierarchy.from_paths([("Gulls", "Arctic Tern"), ("Auks", "Puffin")], levels=("order", "species"))
    with pytest.raises(DataError, match=r"shards-00000\d\.tar .*species has no class '.*'"):
        read_data(packed, hierarchy=renumbered)
    with pytest.raises(DataError, match=r"no level genus \(its levels: order, family, species\)"):
        read_data(packed, levels=["genus"])


def test_shards_without_an_index_are_read_through_once(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    with_index = read_data(packed)
    (packed / "index.json").unlink()
    for _ in range(2):
        found = read_data(packed)
        assert (found.keys, found.images, found.hierarchy) == (with_index.keys, with_index.images, with_index.hierarchy)
        np.testing.assert_array_equal(found.labels, with_index.labels)
        monkeypatch.setattr("torchlht.data.sources.shards._scan", lambda *_: pytest.fail("read through again"))


def test_shards_that_others_made(tmp_path: Path) -> None:
    members = {"a.left.png": png(), "a.json": about("F", "s"), "b/c.json": about("F", None), "b/c.png": png(), "d.png": png()}
    write_tar(tmp_path / "x" / "1.tar", {**members, "d.json": about("G", "t", split="validation", key="dee")})
    samples = read_data(tmp_path / "x")
    assert samples.keys == ("a.left.png", "b/c.png", "dee")
    assert samples.split.tolist() == ["train", "train", "val"]
    assert samples.labels.tolist() == [[0, 0], [-1, 0], [1, 1]]


def test_shards_at_an_address(packed: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in packed.iterdir():
        memory.pipe(f"/test-shards/{file.name}", file.read_bytes())
    here, there = read_data(packed), read_data("memory://test-shards")
    assert there.keys == here.keys
    assert there.checked
    assert str(there.images[0]).startswith("memory:/test-shards/shards-00000")
    assert (np.asarray(open_image(there.images[5])) == np.asarray(open_image(here.images[5]))).all()
    assert len(there.fingerprint()) == 64
    memory.rm("/test-shards/index.json")
    scanned = read_data("memory://test-shards/shards-{000000..000004}.tar")
    assert scanned.keys == here.keys
    assert not scanned.checked
    assert find_problems(scanned.images) == []
    memory.rm("/test-shards", recursive=True)
    with pytest.raises(DataError, match=r"memory://test-shards: no index.json and no .tar in it"):
        read_data("memory://test-shards")
    with pytest.raises(DataError, match="cannot be opened"):
        read_data("nosuch://bucket/x.tar")


def test_a_folder_of_pictures_may_hold_other_files(pictures: Path, packed: Path, tmp_path: Path) -> None:
    assert is_shards(packed)
    (pictures / "index.json").write_text("{}")
    assert not is_shards(pictures)
    assert len(read_data(pictures)) == 48
    (pictures / "index.json").unlink()
    write_tar(pictures / "backup.tar", {})
    write_tar(pictures / "Gulls" / "Terns" / "Arctic Tern" / "backup.tar", {})
    assert not is_shards(pictures)
    assert not is_shards(pictures / "Gulls" / "Terns" / "Arctic Tern")
    assert len(read_data(pictures)) == 48


# ---- what can be wrong ---------------------------------------------------------------------------------------------


def cut(folder: Path) -> None:
    file = tars(folder)[2]
    file.write_bytes(file.read_bytes()[:9_000])


def without_index(change: Callable[[Path], object]) -> Callable[[Path], object]:
    def both(folder: Path) -> None:
        (folder / "index.json").unlink()
        change(folder)

    return both


def exchange(folder: Path) -> None:
    one, other, *_ = tars(folder)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def spoil(folder: Path) -> None:
    file = tars(folder)[0]
    data = bytearray(file.read_bytes())
    data[512 : 512 + 40] = bytes(40)
    file.write_bytes(data)


def other_tree(folder: Path) -> None:
    Hierarchy.from_paths([("A", "a"), ("B", "b")], levels=("order", "species")).write(folder / "hierarchy.json")


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard is missing": (lambda d: tars(d)[3].unlink(), "shards-000003.tar: no such shard, but index.json lists it"),
    "a shard is cut off": (cut, "shards-000002.tar: 9,000 bytes long, but 40,960 in index.json: it was cut off or replaced"),
    "cut off, no index": (without_index(cut), "shards-000002.tar: not a complete, uncompressed tar"),
    "not a tar": (without_index(lambda d: tars(d)[0].write_text("hello")), "not a complete, uncompressed tar"),
    "exchanged": (exchange, "no picture starts here; index.json belongs to other shards: pack again, or remove it"),
    "index is none": (lambda d: (d / "index.json").write_text("[]"), "index.json: not an index written by lht data pack"),
    "tree is another": (other_tree, "index.json and hierarchy.json do not belong together"),
    "tree is none": (lambda d: (d / "hierarchy.json").write_text("{}"), "hierarchy.json: not a tree"),
    "broken picture": (spoil, "1 of 48 pictures cannot be read, the first is"),
    "a stranger": (lambda d: write_tar(d / "shards-000009.tar", {}), "does not list shards-000009.tar"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_shards_is_said_in_a_sentence(name: str, packed: Path, tmp_path: Path, capsys) -> None:
    change, sentence = WRONG[name]
    change(packed)
    data = f"{packed}/*.tar" if name == "a stranger" else str(packed)
    with pytest.raises(SystemExit) as stop:
        main(["data", "pack", data, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"a.png": png(), "a.cls": b"3"}, r"a: holds \.cls, \.png; every picture KEY.jpg needs a KEY.json"),
        (
            {"a.png": png(), "a.json": b'{"label": 3}'},
            r"a: its .json cannot be used \(lacks labels\); every picture",
        ),
        ({"a.png": png(), "a.json": b"no"}, r"its .json cannot be used \(is not valid JSON"),
        ({"a.png": png(), "a.json": about("F", "s", split="holdout")}, "split is 'holdout'; it must be train, val or test"),
        ({"a.json": about("F", "s")}, r"a: holds \.json; every picture"),
        ({}, "no samples found"),
    ],
)
def test_shards_of_another_kind_are_told_what_is_expected(members: dict[str, bytes], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        read_data(write_tar(tmp_path / "x.tar", members))


def test_what_cannot_be_packed_or_streamed_is_refused(
    embeddings: Path, pictures: Path, packed: Path, tmp_path: Path, capsys
) -> None:
    for words, sentence in [
        (["data", "pack", str(embeddings), "--out", str(tmp_path / "o")], "features are already one file"),
        (["data", "pack", str(pictures), "--out", str(packed)], "exists and is not empty; choose another --out"),
        (["data", "pack", str(pictures), "--out", "o", "--size", "1MB", "--per-shard", "3"], "--size and --per-shard both"),
        (["data", "pack", str(pictures), "--out", "o", "--per-shard", "0"], "--per-shard is 0: it must be at least 1"),
        (["data", "preview", f"{packed}/shards-{{000003..000007}}.tar"], "shards-000005.tar: no such shard, 2 of 5 are there"),
        (["train", str(packed), "--stream", "always", "--freeze"], "--freeze reads each picture once"),
    ]:
        with pytest.raises(SystemExit):
            main(words)
        assert sentence in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "o").exists()


# ---- streaming -----------------------------------------------------------------------------------------------------


def numbered(sizes: list[int]) -> list[np.ndarray]:
    """Shards of these sizes, with positions that do not lie in order."""
    order = np.random.default_rng(0).permutation(sum(sizes))
    return np.split(order, np.cumsum(sizes)[:-1])


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    batch_size=st.integers(1, 16),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    at_once=st.integers(1, 20),
    buffer=st.integers(1, 200),
)
def test_every_sample_comes_once_from_few_shards_at_a_time_and_little_is_held(
    sizes: list[int], batch_size: int, seed: int, epoch: int, at_once: int, buffer: int
) -> None:
    shards = numbered(sizes)
    batches = stream_batches(shards, batch_size, seed=seed, epoch=epoch, shards_at_once=at_once, buffer=buffer)
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(sum(sizes)))
    assert len(batches) == -(-len(order) // batch_size)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert batches == stream_batches(shards, batch_size, seed=seed, epoch=epoch, shards_at_once=at_once, buffer=buffer)
    shard, rank = np.empty(len(order), int), np.empty(len(order), int)
    for s, positions in enumerate(shards):
        shard[positions], rank[positions] = s, np.arange(len(positions))
    times = {s: np.flatnonzero(shard[order] == s) for s in range(len(shards))}
    used = [sum(found[0] <= t <= found[-1] for found in times.values()) for t in range(len(order))]
    assert max(used) <= at_once
    read, most = dict.fromkeys(range(len(shards)), 0), 0  # a reader that goes no further in a shard than it must
    for t, i in enumerate(order):
        read[shard[i]] = max(read[shard[i]], rank[i] + 1)
        most = max(most, sum(read.values()) - t)
    assert most <= max(buffer, LANES) + batch_size * LANES  # the last batches are made of what lanes have left


def test_the_order_is_well_mixed_differs_between_epochs_and_is_the_same_everywhere() -> None:
    shards = [np.arange(100 * s, 100 * (s + 1)) for s in range(64)]
    batches = stream_batches(shards, 64, seed=0, epoch=0)
    distinct = [len({i // 100 for i in batch}) for batch in batches]
    assert np.mean(distinct) > 3.5  # of the four that a lane has open
    order = np.array([i for batch in batches for i in batch])
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.3
    inside = [np.corrcoef(np.argsort(order)[shard], shard)[0, 1] for shard in shards]
    assert np.mean(inside) < 0.75  # also the order inside a shard is lost
    assert batches != stream_batches(shards, 64, seed=0, epoch=1)
    assert batches != stream_batches(shards, 64, seed=1, epoch=0)
    assert [batch[0] for batch in batches[:6]] == [5887, 2320, 1091, 427, 1678, 5044]
    assert len(stream_batches(shards, 60, seed=0, epoch=0, drop_last=True)) == 106


def test_workers_keep_to_their_own_shards() -> None:
    shards = [np.arange(100 * s, 100 * (s + 1)) for s in range(64)]
    batches = stream_batches(shards, 50, seed=0, epoch=0)
    assert lanes_of(64) == 4
    for workers in (2, 4):
        mine = [{i // 100 for batch in batches[w::workers] for i in batch} for w in range(workers)]
        assert sum(map(len, mine)) == 64
        later = [{i // 100 for batch in batches[7:][w::workers] for i in batch} for w in range(workers)]
        assert sum(map(len, later)) <= 64  # resumed in the middle
    assert [workers_for(4, n) for n in (0, 1, 2, 3, 4, 6, 8)] == [0, 1, 2, 2, 4, 4, 8]
    assert [lanes_of(n) for n in (1, 7, 8, 16, 1000)] == [1, 1, 2, 4, 4]


def big_shards(folder: Path, count: int, per_shard: int = 40, size: int = 10_000) -> list[TarMember]:
    rng = np.random.default_rng(0)
    paths = []
    for s in range(count):
        file = write_tar(folder / f"{s:03d}.tar", {f"{i}.jpg": rng.bytes(size) for i in range(per_shard)})
        with tarfile.open(file) as tar:
            paths += [TarMember(file, info.offset_data, info.size) for info in tar]
    return paths


def test_what_the_reader_holds_does_not_grow_with_the_number_of_samples(tmp_path: Path) -> None:
    most = []
    for count in (4, 16):
        paths = big_shards(tmp_path / str(count), count)
        plan = [
            paths[i] for batch in stream_batches(lying(paths), 8, seed=0, epoch=0, shards_at_once=4, buffer=32) for i in batch
        ]
        reader = ShardReader(plan, piece=50_000)
        tracemalloc.start()
        held = []
        for path in plan:
            assert len(reader.take(path)) == 10_000
            held.append(reader.held)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()
        assert reader.held == 0
        most.append(max(held))
    assert max(most) <= 32 * 10_000 + 4 * 50_000 + 4 * 80_000  # buffer, a piece per shard, the last batches
    assert most[1] < most[0] * 1.5  # of four times as many samples


def test_the_reader_gives_each_picture_its_bytes_reads_forward_and_serves_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    paths = big_shards(tmp_path / "x", 3, per_shard=10, size=600)
    positions = np.resize(np.arange(20), 50)  # a method that learns from few samples sees them several times
    plan = [
        paths[positions[i]] for batch in stream_batches(lying([paths[p] for p in positions]), 4, seed=3, epoch=1) for i in batch
    ]
    asked: list[tuple[Path, int]] = []
    read = batches.read_range

    def watched(file: Path, start: int, stop: int) -> bytes:
        asked.append((file, start))
        return read(file, start, stop)

    monkeypatch.setattr(batches, "read_range", watched)
    reader = ShardReader(plan, piece=2_000)
    for path in plan:
        assert reader.take(path) == path.file.read_bytes()[path.start : path.start + path.size]
    for file in {file for file, _ in asked}:
        starts = [start for one, start in asked if one == file]
        assert starts == sorted(set(starts))
    assert reader.held == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_streamed_set_gives_what_random_access_gives_also_from_the_middle_of_an_epoch(packed: Path, workers: int) -> None:
    samples = read_data(packed)
    labels = torch.arange(48).unsqueeze(1)
    spec = Preprocess(size=16, resize=20)
    streamed = ImageSet(samples.images, labels, spec, augment="standard", streamed=True)
    plain = ImageSet(samples.images, labels, spec, augment="standard")
    assert not streamed.in_memory
    batches = set_batches(streamed, 7, seed=1, epoch=2)
    for data in (streamed, plain):
        data.set_epoch(1, 2)
    whole = list(load(streamed, batches, workers))
    for (x, y), (a, b) in zip(whole, load(plain, batches), strict=True):
        assert torch.equal(x, a)
        assert torch.equal(y, b)
    rest = list(load(streamed, batches[3:], workers))
    assert all(torch.equal(x, a) for (x, _), (a, _) in zip(whole[3:], rest, strict=True))
    assert sorted(torch.cat([y for _, y in whole[:3] + rest]).flatten().tolist()) == list(range(48))


def test_a_picture_that_was_damaged_later_is_named_in_a_sentence(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = read_data(packed)
    spoil(packed)
    streamed = ImageSet(samples.images, torch.zeros(48, 1), Preprocess(size=16, resize=20), streamed=True)
    with pytest.raises(DataError, match=r"^[^\n]*shards-000000\.tar#512\+\d+: not a readable picture$"):
        list(load(streamed, set_batches(streamed, 8, seed=0, epoch=0)))

    def failing(*_: object, **__: object) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:  # as torch repeats a worker
        yield torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1, 1)
        raise DataError(
            "Caught DataError in worker process 0.\nOriginal Traceback:\n  …\ntorchlht.errors.DataError: x: cut off\n"
        )

    monkeypatch.setattr("torchlht.data.batches.DataLoader", failing)
    with pytest.raises(DataError, match=r"^x: cut off$"):
        list(load(streamed, []))


def test_what_is_streamed_by_itself(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = read_data(packed).images
    assert not TrainArgs("x").streams(here)
    assert TrainArgs("x").streams([picture_at("s3://bucket/x.tar#512+9")])
    assert TrainArgs("x", stream="always").streams(here)
    assert not TrainArgs("x", stream="never").streams([picture_at("s3://bucket/x.tar#512+9")])
    monkeypatch.setattr("torchlht.data.batches.STREAM_FROM", 1000)
    assert TrainArgs("x").streams(here)
