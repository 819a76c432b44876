"""What tests of readers ask of a reader: its rows, its cuts, its bad rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.connect.protocol import BadRow, Reader


def rows_of(reader: Reader) -> list[dict[str, Any]]:
    """The rows; a file that cannot be read raises, as it stops a run."""
    rows: list[dict[str, Any]] = []
    for batch in reader.batches():
        raise_failures(batch.bad)
        rows += batch.rows.to_pylist()
    return rows


def raise_failures(bad: Iterable[BadRow]) -> None:
    for row in bad:
        if row.failure is not None:
            raise row.failure


def cuts_of(reader: Reader) -> list[list[dict[str, Any]]]:
    return [batch.rows.to_pylist() for batch in reader.batches()]


def bad_of(reader: Reader) -> list[BadRow]:
    return [bad for batch in reader.batches() for bad in batch.bad]


def seq_of(reader: Reader) -> list[int]:
    return [number for batch in reader.batches() if batch.seq is not None for number in batch.seq.to_pylist()]


def table_of(reader: Reader) -> pa.Table:
    return pa.Table.from_batches([batch.rows for batch in reader.batches()], schema=reader.schema)
