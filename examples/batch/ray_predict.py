"""Predict for all pictures of a table or a folder on Ray: on this machine, or on a cluster whose address RAY_ADDRESS names.

    pip install 'torchlht[ray]'
    python examples/batch/ray_predict.py birds.onnx pictures.parquet --column path --out answers.json --workers 2
    python examples/batch/ray_predict.py birds.onnx s3://bucket/pictures --out s3://bucket/answers

Tables are Parquet or CSV with a column of paths or addresses, or (Parquet) with contents of picture files. `--out` that ends in
.json is what `lht predict --format json` prints, byte for byte; anything else is a folder of Parquet that the workers write.
A worker that dies is started again, and its rows are computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import fsspec

from torchlht.console import json_text
from torchlht.data.pictures import is_image
from torchlht.files import replacing
from torchlht.serve.bulk import ROWS, Answerer


def table_of(place: str, column: str) -> Any:
    """The rows: of a table, or one for each picture under a folder, in order."""
    import ray.data

    if place.endswith(".parquet"):
        return ray.data.read_parquet(place)
    if place.endswith(".csv"):
        return ray.data.read_csv(place)
    system, path = fsspec.core.url_to_fs(place)
    found = sorted(name for name in system.find(path) if is_image(Path(name)))
    return ray.data.from_items([{column: name if "://" not in place else system.unstrip_protocol(name)} for name in found])


def start(workers: int) -> None:
    """Ray on this machine, unless RAY_ADDRESS names a cluster. Tables are read by one more process than answer."""
    import ray

    here = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers + 1, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level="ERROR", **here)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False


def main() -> None:
    """Read the arguments, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an exported file, or a run directory, that every worker can read")
    parser.add_argument("pictures", help="a table, or a folder, here or at an address")
    parser.add_argument("--out", required=True)
    parser.add_argument("--column", default="picture", help="where pictures are in the table")
    parser.add_argument("--name", help="a column with their names")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--confidence", type=float)
    args = parser.parse_args()
    start(args.workers)
    rows = table_of(args.pictures, args.column).repartition(target_num_rows_per_block=ROWS, strict=True)
    found = rows.map_batches(
        Answerer,
        fn_constructor_args=[args.model, args.column, args.name],
        fn_constructor_kwargs={"confidence": args.confidence},
        batch_size=None,  # a block is a batch
        concurrency=args.workers,
        num_cpus=1,
    )
    if not args.out.endswith(".json"):
        found.write_parquet(args.out)
        return
    answers = []
    for row in found.iter_rows():
        if row["error"]:
            print(f"skipped {row['file']}: {row['error']}", file=sys.stderr)
        else:
            answers.append(json.loads(row["json"]))
    with replacing(Path(args.out)) as file:
        file.write_text(json_text(answers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
