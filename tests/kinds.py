"""Small data of every kind that others write: the same birds as `conftest.PATHS`, one colour per species."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from conftest import LEVELS, PATHS

SIDE = 24


def png(kind: int, i: int = 0, size: tuple[int, int] = (SIDE, SIDE)) -> bytes:
    """A picture of a species: its colour, and some noise."""
    pixels = np.random.default_rng(100 * kind + i).integers(0, 40, (*size[::-1], 3), dtype=np.uint8)
    pixels += np.array([kind % 2 * 200, kind // 2 % 2 * 200, kind // 4 * 200], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


# ---- Hugging Face datasets, written with pyarrow as `datasets` 5.2 writes them -----------------------------------------

SPECIES = [path[2] for path in PATHS]
FAMILIES = sorted({path[1] for path in PATHS})
FEATURES: dict[str, Any] = {
    "image": {"_type": "Image"},
    "species": {"names": SPECIES, "_type": "ClassLabel"},  # finer first, to show that order does not matter
    "family": {"names": FAMILIES, "_type": "ClassLabel"},
}


def bird_rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Rows with a picture inside; every fourth is known by its family alone."""
    found = []
    for i in range(start, start + count):
        kind = i % len(PATHS)
        species = -1 if i % 4 == 3 else kind
        picture = {"bytes": png(kind, i), "path": f"{i}.png"}
        found.append({"image": picture, "species": species, "family": FAMILIES.index(PATHS[kind][1])})
    return found


def arrow_table(rows: Sequence[dict[str, Any]], features: dict[str, Any] | None = None) -> Any:
    """Rows as a table whose schema says what `datasets` says."""
    import pyarrow as pa

    columns = list(rows[0])
    kinds = {"image": pa.struct([("bytes", pa.binary()), ("path", pa.string())])}
    arrays = {name: pa.array([row[name] for row in rows], type=kinds.get(name)) for name in columns}
    about = {} if features is None else {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(arrays).replace_schema_metadata(about)


def write_parquet(
    file: Path, rows: Sequence[dict[str, Any]], features: dict[str, Any] | None = FEATURES, group: int = 7
) -> Path:
    """A parquet file with small groups of rows."""
    import pyarrow.parquet as pq

    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_table(rows, features), file, row_group_size=group)
    return file


def write_saved(folder: Path, rows: Sequence[dict[str, Any]], files: int = 1, features: dict[str, Any] = FEATURES) -> Path:
    """What `Dataset.save_to_disk` writes."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{files:05d}.arrow" for i in range(files)]
    per = -(-len(rows) // files)
    for i, name in enumerate(names):
        table = arrow_table(rows[i * per : (i + 1) * per], features)
        with (folder / name).open("wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=5)
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "9c359db0", "_format_columns": None}
    (folder / "state.json").write_text(json.dumps(state | {"_format_kwargs": {}, "_format_type": None, "_split": None}))
    return folder


def write_splits(folder: Path) -> Path:
    """What `DatasetDict.save_to_disk` writes."""
    write_saved(folder / "train", bird_rows(36), files=2)
    write_saved(folder / "validation", bird_rows(6, 36))
    write_saved(folder / "test", bird_rows(12, 42))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation", "test"]}))
    return folder


def write_hub(folder: Path) -> Path:
    """Parquet files as the hub holds them."""
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", bird_rows(18))
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", bird_rows(18, 18))
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", bird_rows(12, 42))
    (folder / "README.md").write_text("birds")
    return folder


# ---- COCO ----------------------------------------------------------------------------------------------------------


def write_json(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def coco_categories() -> list[dict[str, Any]]:
    """Species with their family as supercategory, which has an order as supercategory in turn."""
    families = {path[1]: path[0] for path in PATHS}
    above = [{"id": 100 + i, "name": name, "supercategory": order} for i, (name, order) in enumerate(families.items())]
    return [{"id": i, "name": path[2], "supercategory": path[1]} for i, path in enumerate(PATHS)] + above


def write_coco(folder: Path, splits: Iterable[str] = ("train", "val"), per: int = 18) -> Path:
    """Pictures with two birds each, in boxes, as COCO lays them out."""
    for split in splits:
        images, annotations = [], []
        for i in range(per):
            name = f"{split}-{i:06d}.png"
            kinds = [i % 6, (i + 1) % 6]
            whole = Image.new("RGB", (2 * SIDE + 10, SIDE + 10), (128, 128, 128))
            for j, kind in enumerate(kinds):
                whole.paste(Image.open(io.BytesIO(png(kind, i))), (5 + j * SIDE, 5))
                box = [5.4 + j * SIDE, 5.4, SIDE - 0.9, SIDE - 0.9]
                annotations.append({"id": len(annotations), "image_id": i, "category_id": kind, "bbox": box, "iscrowd": 0})
            place = folder / f"{split}2017" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            whole.save(place)
            images.append({"id": i, "file_name": name, "width": whole.width, "height": whole.height})
        content = {"info": {}, "images": images, "annotations": annotations, "categories": coco_categories()}
        write_json(folder / "annotations" / f"instances_{split}2017.json", content)
    return folder


def write_inat(folder: Path, count: int = 24) -> Path:
    """One species per picture and no boxes, as iNaturalist's competitions write it."""
    categories = [
        {"id": i, "name": species, "supercategory": "Birds", "order": order, "family": family, "common_name": "x"}
        for i, (order, family, species) in enumerate(PATHS)
    ]
    images = [{"id": i, "file_name": f"train_val/{i}.png", "latitude": None} for i in range(count)]
    annotations = [{"id": i, "image_id": i, "category_id": i % 6} for i in range(count)]
    for i in range(count):
        place = folder / "train_val" / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(png(i % 6, i))
    return write_json(folder / "train.json", {"images": images, "categories": categories, "annotations": annotations})


# ---- a Darwin Core archive -----------------------------------------------------------------------------------------

DWC, DC = "http://rs.tdwg.org/dwc/terms/", "http://purl.org/dc/terms/"
META = """<archive xmlns="http://rs.tdwg.org/dwc/text/" metadata="metadata.xml">
  <core encoding="utf-8" linesTerminatedBy="\\n" fieldsTerminatedBy="\\t" fieldsEnclosedBy="" ignoreHeaderLines="1"
        rowType="http://rs.tdwg.org/dwc/terms/Occurrence">
    <files><location>occurrence.txt</location></files>
    <id index="0" />
{core}
  </core>
  <extension encoding="utf-8" linesTerminatedBy="\\n" fieldsTerminatedBy="\\t" fieldsEnclosedBy="" ignoreHeaderLines="1"
        rowType="http://rs.gbif.org/terms/1.0/Multimedia">
    <files><location>multimedia.txt</location></files>
    <coreid index="0" />
{media}
  </extension>
</archive>
"""


def write_archive(folder: Path, count: int = 24) -> Path:
    """An archive as GBIF exports it, and its pictures where wget puts them."""
    terms = [
        f"{DWC}{name}" for name in ("order", "family", "genus", "specificEpithet", "scientificName", "taxonRank", "locality")
    ]
    media = [f"{DC}{name}" for name in ("type", "format", "identifier")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.xml").write_text(META.format(core=_fields(terms), media=_fields(media)))
    observations, pictures = [["gbifID", *terms]], [["gbifID", *media]]
    for i in range(count):
        order, family, species = PATHS[i % 6]
        genus, _, epithet = species.replace("-", "_").partition(" ")
        known = [genus, epithet, f"{species} (Phipps, 1774)", "SPECIES"] if i % 4 != 3 else ["", "", family, "FAMILY"]
        observations.append([f"{1000 + i}", order, family, *known, 'an "open quote'])
        pictures.append([f"{1000 + i}", "StillImage", "image/png", f"https://pictures.example/photos/{i}/original.png"])
        pictures.append([f"{1000 + i}", "Sound", "audio/mpeg", f"https://pictures.example/{i}.mp3"])
        place = folder / "media" / "pictures.example" / "photos" / str(i) / "original.png"
        place.parent.mkdir(parents=True)
        place.write_bytes(png(i % 6, i))
    for name, rows in (("occurrence.txt", observations), ("multimedia.txt", pictures)):
        (folder / name).write_text("".join("\t".join(row) + "\n" for row in rows))
    return folder


def _fields(terms: Sequence[str]) -> str:
    return "\n".join(f'    <field index="{i}" term="{term}"/>' for i, term in enumerate(terms, start=1))


# ---- one level of folders ------------------------------------------------------------------------------------------


def write_flat(folder: Path) -> Path:
    """Folders of species as torchvision's ImageFolder wants them, and the tree beside them."""
    for split, count in (("train", 6), ("val", 2), ("test", 3)):
        for kind, name in enumerate([*SPECIES, "Terns"]):  # of the last, only the family is known
            place = folder / "photos" / split / name
            place.mkdir(parents=True)
            for i in range(count):
                (place / f"{i}.png").write_bytes(png(min(kind, 5), i))
    (folder / "tree.csv").write_text("\n".join([",".join(LEVELS), *map(",".join, PATHS), ""]))
    return folder / "photos"
