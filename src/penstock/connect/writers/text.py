"""Staged text files, and times as text: shared by the writers of csv and jsonl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import ConnectorError
from penstock.expr import compute as pc

# ISO 8601 writes years with four digits: these are 0001-01-01 and the last moment of 9999.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


class StagedTextFile:
    """A text file; `encode` turns rows into whole lines."""

    def __init__(self, file: Path, head: bytes, encode: Callable[[pa.RecordBatch], bytes]) -> None:
        self._stream = file.open("wb")
        self._encode = encode
        self._stream.write(head)

    def add(self, rows: pa.RecordBatch) -> None:
        """Appends rows."""
        self._stream.write(self._encode(rows))

    def finish(self) -> None:
        """Writes what is buffered, and closes the file."""
        self._stream.close()


def format_times(array: pa.Array, name: str) -> pa.Array:
    """Returns timestamps as `2026-01-31T12:00:00.000000`, in UTC without a zone; dates as `2026-01-31`."""
    is_date = kind.is_date32(array.type)
    counts = array.view(pa.int32() if is_date else pa.int64())
    first, last = (_FIRST_DAY, _LAST_DAY) if is_date else (_FIRST_US, _LAST_US)
    reach = pc.min_max(counts).as_py()
    if reach["min"] is not None and (reach["min"] < first or reach["max"] > last):
        far = reach["min"] if reach["min"] < first else reach["max"]
        raise ConnectorError(
            f'column "{name}" holds a time outside the years 1 to 9999, which text cannot show',
            detail=f"{far} {'days' if is_date else 'microseconds'} from 1970",
            hint="write parquet, or filter such rows",
        )
    text = counts.view(pa.date32() if is_date else pa.timestamp("us")).cast(pa.string())
    return pc.replace_substring(text, " ", "T")
