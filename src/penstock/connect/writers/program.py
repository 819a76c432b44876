"""Writers to the program itself: rows in memory, to a function, as a table on the console.

A batch is shown when it is committed. On the console, rows are data, not commands: characters that a terminal
would obey are shown as escapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, ClassVar, TextIO, TypeAlias
from unicodedata import combining, east_asian_width

import pyarrow as pa
import pyarrow.types as kind

from penstock.caller import find_definition, name_of
from penstock.connect.batching import Row, RowLists, SourceRowBatch, check_size
from penstock.connect.conversion import concat_batches
from penstock.connect.protocol import Delivery
from penstock.errors import ConnectorError, FunctionError, PenstockError
from penstock.frozen import Frozen

Part: TypeAlias = Any
"""A RecordBatch, `RowLists`, or a plain row. A committed batch is a list of these, or its only row."""
_MAX_WIDTH = 40


class StagedOutput:
    """Calls `show` with a batch's number and all its rows when it is committed, unless it has none.

    Invariant: batches commit in rising order, so the last number says which have been shown.
    """

    def __init__(
        self,
        show: Callable[[int, pa.RecordBatch], None],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._show, self._on_close = show, on_close
        self._staged: dict[int, list[pa.RecordBatch]] = {}
        self._last_shown = -1

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Hold the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def commit(self, batch: int) -> None:
        """Show them, once."""
        staged = self._staged.pop(batch, None)
        if staged and batch > self._last_shown:
            self._show(batch, concat_batches(staged, staged[0].schema))
            self._last_shown = batch

    def close(self) -> None:
        """Drop what was not committed."""
        self._staged.clear()
        self._on_close()


class Memory:
    """The rows that a run wrote: `.rows()`, `.table()`, `.batches()`. A new run starts it empty.

    Early results are kept beside final ones, with a column that says which are final.
    """

    delivery = Delivery.AT_MOST_ONCE
    accepts_updates = True

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._committed: dict[int, Part] = {}
        self._sink: str | None = None

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> MemoryOutput:
        """Forget the last run, unless this one resumes it."""
        if self._sink is not None:
            raise ConnectorError(
                f'memory() is being written by sink "{self._sink}"',
                hint=f'give sink "{sink}" a memory() of its own',
            )
        if not resume:
            self._committed = {}
        self._schema, self._sink = schema, sink
        return MemoryOutput(self._committed, self._release)

    def describe(self) -> str:
        """Return one line for explain()."""
        return "memory"

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows of each batch that had any, in order."""
        return [concat_batches(_to_record_batches(p, self._schema), self._schema) for p in self._parts()]

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        if self._schema is None:
            raise ConnectorError("memory() holds no table yet", hint="run the graph first: graph.run()")
        return pa.Table.from_batches(self._record_batches(), schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as dicts."""
        return [row for batch in self._record_batches() for row in batch.to_pylist()]

    def _record_batches(self) -> list[pa.RecordBatch]:
        return _to_record_batches(chain.from_iterable(self._parts()), self._schema)

    def _parts(self) -> Iterator[Sequence[Part]]:
        """Yield the parts of each batch."""
        for batch in self._committed.values():
            yield (batch,) if isinstance(batch, dict) else batch

    def _release(self) -> None:
        self._sink = None


class MemoryOutput(StagedOutput):
    """The output of one run; rows that come as plain values stay so until somebody reads them.

    commit_row  takes and commits a plain row that is all of a batch, once
    """

    def __init__(self, committed: dict[int, Part], on_close: Callable[[], None]) -> None:
        super().__init__(committed.setdefault, on_close)
        self.commit_row: Callable[[int, Row], object] = committed.setdefault

    def write_plain(self, batch: int, rows: Sequence[Row], schema: pa.Schema) -> None:
        """Hold plain rows back."""
        self._staged.setdefault(batch, []).extend((rows,) if isinstance(rows, RowLists) else rows)

    def commit(self, batch: int) -> None:
        """Keep the rows of a batch, once."""
        if staged := self._staged.pop(batch, None):
            self._show(batch, staged)


def _to_record_batches(parts: Iterable[Part], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return parts as columns, in order; plain rows that stand together as one batch."""
    batches: list[pa.RecordBatch] = []
    for is_plain, group in groupby(parts, lambda part: isinstance(part, dict)):
        members = list(group)
        if is_plain:
            members = [members]
        batches += [
            part if isinstance(part, pa.RecordBatch) else SourceRowBatch(part, schema, 0).rows
            for part in members
        ]
    return batches


def memory() -> Memory:
    """Keep rows in memory: `out = ps.write.memory()`, and after the run `out.rows()`."""
    return Memory()


class Callback(Frozen):
    """A writer that calls a function with each batch of rows.

    A crash after the call and before the commit makes it call again. Early results are rows too, with a
    column that says which are final.
    """

    function: Callable[[pa.RecordBatch], object]

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Return an output that calls the function on every commit."""
        return StagedOutput(
            lambda batch, rows: call_function(
                self.function,
                rows,
                detail=f"it got batch {batch}: {rows.num_rows} rows of {', '.join(rows.schema.names)}",
                hint="mend the function; the batch is not committed and will come again after a restart",
            )
        )

    def describe(self) -> str:
        """Return such as `callback notify`."""
        return f"callback {name_of(self.function)}"


def call_function(function: Callable[..., object], *arguments: object, detail: str, hint: str) -> None:
    """Call a user's function; an exception that it raises is shown with its line."""
    try:
        function(*arguments)
    except PenstockError:
        raise
    except Exception as problem:
        raise FunctionError(
            f"{name_of(function)} raised {type(problem).__name__}: {problem}",
            where=find_definition(function),
            detail=detail,
            hint=hint,
        ) from problem


def callback(function: Callable[[pa.RecordBatch], object]) -> Callback:
    """Call a function with the rows of each batch, as a RecordBatch; batches without rows are left out."""
    if not callable(function):
        raise ConnectorError(
            f"{function!r:.80} cannot be called", hint="give a function: ps.write.callback(print)"
        )
    return Callback(function)


class Console(Frozen):
    """A writer that prints; at most `limit` rows of a run, the others are counted."""

    limit: int | None
    stream: TextIO | None

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Return an output that counts rows against the limit."""
        return ConsoleOutput(sink, self.limit, self.stream or sys.stdout)

    def describe(self) -> str:
        """Return one line for explain()."""
        return "console" if self.limit is None else f"console (first {self.limit} rows)"


class ConsoleError(ConnectorError, BrokenPipeError):
    """Nobody reads the stream of a console any more: both a refusal of ours and what print() would raise."""


class ConsoleOutput(StagedOutput):
    """Prints batches, and in the end how many rows were not printed."""

    def __init__(self, sink: str, limit: int | None, stream: TextIO) -> None:
        super().__init__(self._print_rows, self._end)
        self._sink, self._limit, self._stream = sink, limit, stream
        self._n_printed = self._n_hidden = 0

    def _print_rows(self, batch: int, rows: pa.RecordBatch) -> None:
        left = rows.num_rows if self._limit is None else self._limit - self._n_printed
        visible = rows.slice(0, left)
        self._n_printed += visible.num_rows
        self._n_hidden += rows.num_rows - visible.num_rows
        if visible.num_rows:
            self._print(format_table(visible))

    def _end(self) -> None:
        if self._n_hidden:
            self._print(f"{self._sink}: {self._n_hidden} more rows")
            self._n_hidden = 0

    def _print(self, text: str) -> None:
        """Print text; characters that the stream's encoding lacks are shown as escapes, so no row fails."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            print(text.encode(encoding, "backslashreplace").decode(encoding), file=self._stream, flush=True)
        except BrokenPipeError:
            raise ConsoleError(
                "nobody reads the console any more: what it prints into was closed",
                hint="catch BrokenPipeError around the run, or use the command penstock run, which then ends",
            ) from None


def console(*, limit: int | None = 100, stream: TextIO | None = None) -> Console:
    """Print rows as a table: the first `limit` of a run (None: all), to standard output or `stream`.

    When that is a pipe and its reader goes away, as `head` does, the run fails with a BrokenPipeError, as
    `print` would; it is a ConnectorError too. `penstock run` then ends without a word, with code 141.
    """
    return Console(check_size("limit", limit), stream)


def format_table(rows: pa.RecordBatch) -> str:
    """Return the rows under their column names, numbers to the right."""
    columns = []
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        cells = [_cell(name), *(_cell(value) for value in array.to_pylist())]
        wide = max(map(_width, cells))
        pads = [" " * (wide - _width(cell)) for cell in cells]
        right = kind.is_integer(array.type) or kind.is_floating(array.type) or kind.is_decimal(array.type)
        columns.append([pad + cell if right else cell + pad for cell, pad in zip(cells, pads, strict=True)])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def _cell(value: object) -> str:
    text = "null" if value is None else str(value)
    safe = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return safe if len(safe) <= _MAX_WIDTH else safe[: _MAX_WIDTH - 1] + "…"


def _width(text: str) -> int:
    """Return the columns on a terminal: wide characters take two, combining ones none."""
    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)
