"""The writer that prints rows as an aligned table, a batch at a time.

Rows are data, not commands: characters that a terminal would obey are shown as escapes.
"""

from __future__ import annotations

import sys
from typing import ClassVar, TextIO
from unicodedata import combining, east_asian_width

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batching import check_size
from penstock.connect.protocol import Delivery
from penstock.connect.writers.staged_output import StagedOutput
from penstock.frozen import dataclass

_MAX_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Console:
    """A writer that prints; at most `limit` rows of a run, the others are counted."""

    limit: int | None
    stream: TextIO | None

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Returns an output that counts rows against the limit."""
        printer = _Printer(sink, self.limit, self.stream or sys.stdout)
        return StagedOutput(printer.show, printer.end)

    def describe(self) -> str:
        """Returns one line for explain()."""
        return "console" if self.limit is None else f"console (first {self.limit} rows)"


class _Printer:
    def __init__(self, sink: str, limit: int | None, stream: TextIO) -> None:
        self._sink, self._limit, self._stream = sink, limit, stream
        self._n_printed = self._n_hidden = 0

    def show(self, batch: int, rows: pa.RecordBatch) -> None:
        left = rows.num_rows if self._limit is None else self._limit - self._n_printed
        visible = rows.slice(0, left)
        self._n_printed += visible.num_rows
        self._n_hidden += rows.num_rows - visible.num_rows
        if visible.num_rows:
            self._print(format_table(visible))

    def end(self) -> None:
        if self._n_hidden:
            self._print(f"{self._sink}: {self._n_hidden} more rows")
            self._n_hidden = 0

    def _print(self, text: str) -> None:
        """Prints text; characters that the stream's encoding lacks are shown as escapes, so no row fails."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=self._stream, flush=True)


def console(*, limit: int | None = 100, stream: TextIO | None = None) -> Console:
    """Print rows as a table: the first `limit` of a run (None: all), to standard output or `stream`."""
    return Console(check_size("limit", limit), stream)


def format_table(rows: pa.RecordBatch) -> str:
    """Returns the rows under their column names, numbers to the right."""
    columns = [_column(name, array) for name, array in zip(rows.schema.names, rows.columns, strict=True)]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def _column(name: str, array: pa.Array) -> list[str]:
    right = kind.is_integer(array.type) or kind.is_floating(array.type) or kind.is_decimal(array.type)
    cells = [_cell(name), *(_cell(value) for value in array.to_pylist())]
    wide = max(map(_width, cells))
    pads = [" " * (wide - _width(cell)) for cell in cells]
    return [pad + cell if right else cell + pad for cell, pad in zip(cells, pads, strict=True)]


def _cell(value: object) -> str:
    text = "null" if value is None else str(value)
    safe = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return safe if len(safe) <= _MAX_WIDTH else safe[: _MAX_WIDTH - 1] + "…"


def _width(text: str) -> int:
    """Returns the columns on a terminal: wide characters take two, combining ones none."""
    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)
