"""Parse csv text of known columns; single out the rows that cannot be parsed.

The quick way is Arrow's own reader on a whole chunk. When that fails, or when the number of rows it finds is
not the number that stand there (an unclosed quote), the chunk is read again as text and its columns are
converted one by one, which finds the cells that are to blame; see `csv_cells`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.types as kind

from penstock.connect.columns import empty_batch, joined
from penstock.connect.readers.csv_cells import convert
from penstock.connect.readers.csv_rows import RawRow, each_row, n_rows_if_tidy
from penstock.connect.readers.textfile import Chunk
from penstock.frozen import dataclass

_PARSE_ERRORS = (pa.ArrowInvalid, UnicodeDecodeError)  # the latter: Arrow quotes bad bytes in its message
_WORTH_THREADS = 1 << 18


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is written: its columns as they stand there, the delimiter, and what null looks like."""

    names: tuple[str, ...]
    delimiter: str
    nulls: tuple[str, ...]

    def is_blank(self, row: bytes) -> bool:
        """Whether a row is only an empty line, which counts as a row when there is but one column."""
        return len(self.names) > 1 and not row.strip(b"\r\n")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a chunk that could be parsed, where they stood, and the others with the reason."""

    rows: pa.RecordBatch
    positions: list[int]
    bad: list[tuple[int, RawRow, str]]
    n_rows: int


def parse_chunk(chunk: Chunk, layout: Layout, schema: pa.Schema) -> Parsed:
    """The chunk's columns that the schema names."""
    try:
        rows = _columns(chunk.text, layout, schema)
    except _PARSE_ERRORS:  # some row is to blame: find it
        return _parse_rows(_raw_rows(chunk, layout), layout, schema)
    if b'"' in chunk.text and rows.num_rows != n_rows_if_tidy(chunk.text):
        raw = _raw_rows(chunk, layout)
        if rows.num_rows != len(raw) or any(row.broken for row in raw):
            return _parse_rows(raw, layout, schema)
    return Parsed(rows, list(range(rows.num_rows)), [], rows.num_rows)


def inferred_types(text: bytes, layout: Layout) -> pa.Schema:
    """The types that the values look like; text where they look like nothing that rows can hold."""
    # Rows of the wrong width, or that are not text, are set aside later; they must not hide the types of
    # the others. Arrow hands a row on only as text, so what is none is shown as escapes.
    readable = text.decode("utf-8", errors="backslashreplace").encode()
    found = _read(readable, layout, None, lambda _: "skip").schema
    return pa.schema([(field.name, _held_as(field.type)) for field in found])


def _held_as(type: pa.DataType) -> pa.DataType:
    if kind.is_null(type) or kind.is_time(type) or kind.is_binary(type) or kind.is_duration(type):
        return pa.string()
    return pa.timestamp("us", type.tz) if kind.is_timestamp(type) else type


def _raw_rows(chunk: Chunk, layout: Layout) -> list[RawRow]:
    rows = each_row(chunk.text, layout.delimiter, chunk.line)
    return [row for row in rows if not layout.is_blank(row.text)]


def _columns(text: bytes, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    """Arrow's reading of the text; raises when any row does not fit."""
    if not text.strip(b"\r\n") and (len(layout.names) > 1 or not text):
        return empty_batch(schema)
    return joined(_read(text, layout, schema).to_batches(), schema)


def _parse_rows(raw: list[RawRow], layout: Layout, schema: pa.Schema) -> Parsed:
    """Set aside rows that are not text, then rows of the wrong width, then rows with a wrong value."""
    reasons = {at: reason for at, row in enumerate(raw) if (reason := _not_text(row)) is not None}
    left = [at for at in range(len(raw)) if at not in reasons]
    texts, wrong_width = _as_text([raw[at] for at in left], layout, schema)
    reasons.update((left[at], reason) for at, reason in wrong_width.items())
    left = [at for at in left if at not in reasons]
    rows, wrong_value = convert(texts, schema)
    reasons.update((left[at], reason) for at, reason in wrong_value.items())
    bad = [(at, raw[at], reasons[at]) for at in sorted(reasons)]
    return Parsed(rows, [at for at in left if at not in reasons], bad, len(raw))


def _not_text(row: RawRow) -> str | None:
    if row.broken:
        return "a quote in it is never closed"
    try:
        row.text.decode()
    except UnicodeDecodeError as problem:
        return f"byte {problem.start + 1} of the row is not UTF-8"
    return None


def _as_text(raw: list[RawRow], layout: Layout, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, str]]:
    """All columns as strings, and the rows that have too many or too few of them."""
    strings = pa.schema([(name, pa.string()) for name in schema.names])
    wrong: dict[int, str] = {}

    def set_aside(row: arrow_csv.InvalidRow) -> str:
        wrong[row.number - 1] = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        return "skip"

    if not raw:
        return empty_batch(strings), wrong
    ended = [row.text if row.text.endswith((b"\n", b"\r")) else row.text + b"\n" for row in raw]
    table = _read(b"".join(ended), layout, strings, set_aside)
    assert table.num_rows + len(wrong) == len(raw), "Arrow and csv_rows agree on where rows end"
    return joined(table.to_batches(), strings), wrong


def _read(
    text: bytes,
    layout: Layout,
    schema: pa.Schema | None,
    on_wrong_width: Callable[[arrow_csv.InvalidRow], str] | None = None,
) -> pa.Table:
    # One block: Arrow would cut blocks at ends of lines, also inside quotes. Only a single thread numbers
    # the rows that it hands to `on_wrong_width`.
    threads = on_wrong_width is None and len(text) > _WORTH_THREADS
    return arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(column_names=layout.names, block_size=len(text) + 1, use_threads=threads),
        arrow_csv.ParseOptions(
            delimiter=layout.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(layout.names) > 1,
            invalid_row_handler=on_wrong_width,
        ),
        arrow_csv.ConvertOptions(
            include_columns=schema.names if schema else None,
            column_types=schema,
            null_values=layout.nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
