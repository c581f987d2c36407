"""Rows of Arrow and parquet files, as `datasets` of Hugging Face writes them: what columns hold, and the pictures in them.

    data-00000-of-00001.arrow      columns image {bytes, path} and label; the class names of label are in the schema
    train-00000-of-00001.parquet   the same, in groups of rows

Nothing is copied: .arrow files are mapped into memory, and of .parquet files the last few groups of rows are held.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from torchlht.data.pictures import PICTURE_BYTES, Picture, State, as_url, read_all, state_of
from torchlht.doors import open_file
from torchlht.errors import DataError, MissingExtraError, first_line

ROW_SUFFIXES: Final = (".arrow", ".parquet")
PARTS: Final = frozenset(("bytes", "path"))
"""What a column of pictures has in each row, of which one may be null."""
GROUP_BYTES: Final = 2**31
"""Most bytes of a column in a group of rows, which is read as a whole: `datasets` writes groups of some 100 MB."""
HELD: Final = 4
"""Groups of rows that are held in memory."""
_reading = threading.Lock()  # several threads check pictures; without the lock each would read the same group


@dataclass(frozen=True, slots=True, order=True)
class RowPicture(Picture):
    """The picture in a row of a file."""

    file: Path
    row: int

    @property
    def part(self) -> str:
        """#ROW."""
        return f"#{self.row}"

    def read(self) -> bytes:
        """Its bytes, or those of the file that the row names. Raises DataError when there is neither."""
        rows = open_rows(self.file)
        if not 0 <= self.row < rows.count:
            raise DataError(f"{self}: no such row; the file has {rows.count:,}")
        with _reading, told(self.file):
            cell = rows.cell(rows.picture_column(), self.row) or {}
        if cell.get("bytes") is None:
            return read_all(linked(self.file, cell.get("path"), str(self)), PICTURE_BYTES)
        if len(cell["bytes"]) > PICTURE_BYTES:
            raise DataError(f"{self}: has {len(cell['bytes']):,} bytes; the most that is read is {PICTURE_BYTES:,}")
        return bytes(cell["bytes"])


def linked(file: Path, path: str | None, where: str) -> Path:
    """The picture file that a row names instead of holding it. Raises DataError when it names none on this computer."""
    if not path:
        raise DataError(f"{where}: the row has no picture")
    if as_url(path):
        raise DataError(f"{where}: {path} is an address; save the data with its pictures inside, or download them")
    return file.parent / path


class Rows(ABC):
    """An open file.

    Attributes:
        file: where it is.
        schema: the names and types of its columns.
        names: the names of its columns.
        count: how many rows it has.
    """

    def __init__(self, file: Path, schema: Any, count: int) -> None:
        self.file, self.schema, self.count = file, schema, count
        self.names: list[str] = list(schema.names)

    @abstractmethod
    def column(self, name: str, part: str | None = None) -> Any:
        """A column, or a part of it, as an Arrow array whose offsets are checked."""

    @abstractmethod
    def cell(self, name: str, row: int) -> Any:
        """One value of a column."""

    @abstractmethod
    def all_inside(self, name: str) -> bool:
        """Whether it is quick to say that every row of a column of pictures holds its bytes."""

    @functools.cached_property
    def features(self) -> dict[str, dict[str, Any]]:
        """What `datasets` says of each column: its `_type`, and the `names` of a ClassLabel. Empty for other files."""
        try:
            declared = msgspec.json.decode((self.schema.metadata or {})[b"huggingface"])["info"]["features"]
            return {str(name): one for name, one in declared.items() if isinstance(one, dict)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError):
            return {}

    def picture_column(self) -> str:
        """The first column of pictures: declared as Image, or at least made as one. Raises DataError if there is none."""
        fitting = [str(field.name) for field in self.schema if _parts_of(field.type) >= PARTS]
        declared = [name for name in fitting if self.features.get(name, {}).get("_type") == "Image"]
        if not fitting:
            raise DataError(f"{self.file}: no column of pictures (columns: {', '.join(self.names)}); one holds bytes and path")
        return (declared or fitting)[0]


class ArrowRows(Rows):
    """A file in Arrow's stream format, which `save_to_disk` writes, or in its file format."""

    def __init__(self, file: Path, pa: Any) -> None:
        source = pa.memory_map(str(file))
        is_stream = bytes(source.read(6)) != b"ARROW1"
        source.seek(0)
        self.table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(source).read_all()
        super().__init__(file, self.table.schema, self.table.num_rows)
        self.cells = functools.lru_cache(self.column)

    def column(self, name: str, part: str | None = None) -> Any:
        """A column; only offsets are read for it."""
        return _part(_sound(self.table.column(name)), part)

    def cell(self, name: str, row: int) -> Any:
        """One value of a column."""
        return self.cells(name)[row].as_py()

    def all_inside(self, name: str) -> bool:
        """Yes, if no row is null."""
        return bool(self.column(name, "bytes").null_count == 0)


class ParquetRows(Rows):
    """A parquet file."""

    def __init__(self, file: Path, pa: Any) -> None:
        import pyarrow.parquet

        self.parquet = pyarrow.parquet.ParquetFile(pa.memory_map(str(file)))
        self.about = self.parquet.metadata
        groups = [self.about.row_group(i) for i in range(self.about.num_row_groups)]
        self.ends = list(itertools.accumulate(group.num_rows for group in groups))
        super().__init__(file, self.parquet.schema_arrow, self.about.num_rows)
        for name, column in ((name, column) for group in groups for name, column in _columns(group)):
            if column.total_uncompressed_size > GROUP_BYTES:
                raise DataError(
                    f"{file}: {name} has {column.total_uncompressed_size:,} bytes in one group of rows; "
                    f"the most that is read is {GROUP_BYTES:,}: write smaller groups"
                )
        self.group = functools.lru_cache(HELD)(self._group)

    def _group(self, number: int, name: str) -> Any:
        return _sound(self.parquet.read_row_group(number, [name], use_threads=False).column(0))

    def column(self, name: str, part: str | None = None) -> Any:
        """A column."""
        wanted = f"{name}.{part}" if part else name
        found = _sound(self.parquet.read([wanted], use_threads=False).column(0))
        if len(found) != self.count:
            raise DataError(f"{self.file}: is damaged: {name} has {len(found):,} rows, but the file {self.count:,}")
        return _part(found, part)

    def cell(self, name: str, row: int) -> Any:
        """One value of a column, from its group of rows."""
        number = bisect.bisect_right(self.ends, row)
        return self.group(number, name)[row - (self.ends[number - 1] if number else 0)].as_py()

    def all_inside(self, name: str) -> bool:
        """Yes, if the statistics of every group say so."""
        groups = (self.about.row_group(i) for i in range(self.about.num_row_groups))
        found = (column.statistics for group in groups for path, column in _columns(group) if path == f"{name}.bytes")
        return all(one is not None and one.has_null_count and one.null_count == 0 for one in found)


def open_rows(file: Path) -> Rows:
    """An .arrow or .parquet file. Raises DataError when it is damaged, MissingExtraError without pyarrow."""
    return _open(file, state_of(file))


@functools.lru_cache(maxsize=64)
def _open(file: Path, _state: State) -> Rows:
    """An open file; opened again when it has changed."""
    with open_file(file):
        pass  # a regular file that can be read
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(f"{file}: reading {file.suffix} files", extra="arrow") from None
    kind: Callable[[Path, Any], Rows] = ParquetRows if file.suffix.lower() == ".parquet" else ArrowRows
    with told(file):
        return kind(file, pa)


@contextmanager
def told(file: Path) -> Iterator[None]:
    """Context: what pyarrow finds wrong with a file is a DataError."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: is damaged, or no {file.suffix} file ({first_line(error)}); copy or write it again") from None


def _parts_of(kind: Any) -> set[str]:
    """The names of the parts of a type; empty for a plain one."""
    return {kind.field(i).name for i in range(kind.num_fields)}


def _part(column: Any, part: str | None) -> Any:
    import pyarrow.compute

    return pyarrow.compute.struct_field(column, part) if part else column


def _sound(column: Any) -> Any:
    """The column itself. Raises ArrowInvalid if its offsets, which a file may say anything about, lead outside of it."""
    column.validate(full=True)
    return column


def _columns(group: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a group of rows, with their names."""
    columns = (group.column(j) for j in range(group.num_columns))
    return ((column.path_in_schema, column) for column in columns)
