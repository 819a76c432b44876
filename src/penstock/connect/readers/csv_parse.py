"""Parse csv text of known columns; single out the rows that cannot be parsed.

The quick way is Arrow's own reader on a whole chunk. When that fails, or when the number of rows it finds is
not the number that stand there (an unclosed quote), the chunk is parsed again as rows: halves that parse are
kept, and a single row that does not is bad. There, times are read by `connect.iso`, which also takes a zone
where the column has none, no zone where it has one, and more digits than microseconds.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.types as kind

from penstock.connect.columns import empty_batch, gather, joined, plain_value
from penstock.connect.iso import parse_time
from penstock.connect.readers.csv_rows import RawRow, split_rows
from penstock.connect.readers.textfile import Chunk
from penstock.expr.failure import RowFailure
from penstock.expr.types import to_plain

_PARSE_ERRORS = (pa.ArrowInvalid, UnicodeDecodeError)  # the latter: Arrow quotes bad bytes in its message
_WRONG_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (.+?): (.*)", re.DOTALL
)
_WRONG_WIDTH = re.compile(r"Expected (\d+) columns, got (\d+)")


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
    quoted = b'"' in chunk.text
    raw = _raw_rows(chunk, layout) if quoted else []
    try:
        rows = _columns(chunk.text, layout, schema)
        if not quoted or (rows.num_rows == len(raw) and not any(row.broken for row in raw)):
            return Parsed(rows, list(range(rows.num_rows)), [], rows.num_rows)
    except _PARSE_ERRORS:
        pass  # some row is to blame: find it
    return _row_by_row(raw or _raw_rows(chunk, layout), layout, schema)


def inferred_types(text: bytes, layout: Layout) -> pa.Schema:
    """The types that the values look like; text where they look like nothing that rows can hold."""
    read, parse, convert = _options(text, layout)
    try:
        found = arrow_csv.read_csv(io.BytesIO(text), read, parse, convert).schema
    except _PARSE_ERRORS:
        # Rows of the wrong width are set aside later; they must not hide the types of the others.
        parse.invalid_row_handler = lambda _: "skip"
        found = arrow_csv.read_csv(io.BytesIO(text), read, parse, convert).schema
    return pa.schema([(field.name, _held_as(field.type)) for field in found])


def _held_as(type: pa.DataType) -> pa.DataType:
    if kind.is_null(type) or kind.is_time(type) or kind.is_binary(type) or kind.is_duration(type):
        return pa.string()
    return pa.timestamp("us", type.tz) if kind.is_timestamp(type) else type


def _raw_rows(chunk: Chunk, layout: Layout) -> list[RawRow]:
    rows = split_rows(chunk.text, layout.delimiter, chunk.line)
    return [row for row in rows if not layout.is_blank(row.text)]


def _columns(text: bytes, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    """Arrow's reading of the text; raises when any row does not fit."""
    if not text.strip(b"\r\n") and len(layout.names) > 1:
        return empty_batch(schema)
    read, parse, convert = _options(text, layout)
    convert.include_columns = schema.names
    convert.column_types = schema
    table = arrow_csv.read_csv(io.BytesIO(text), read, parse, convert)
    return joined(table.to_batches(), schema)


def _options(
    text: bytes, layout: Layout
) -> tuple[arrow_csv.ReadOptions, arrow_csv.ParseOptions, arrow_csv.ConvertOptions]:
    # One block: Arrow would cut blocks at ends of lines, also inside quotes.
    read = arrow_csv.ReadOptions(column_names=layout.names, block_size=len(text) + 1)
    parse = arrow_csv.ParseOptions(
        delimiter=layout.delimiter,
        newlines_in_values=True,
        ignore_empty_lines=len(layout.names) > 1,
    )
    convert = arrow_csv.ConvertOptions(
        null_values=layout.nulls, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return read, parse, convert


def _row_by_row(raw: list[RawRow], layout: Layout, schema: pa.Schema) -> Parsed:
    loose = pa.schema([(f.name, pa.string() if kind.is_timestamp(f.type) else f.type) for f in schema])
    bad: list[tuple[int, RawRow, str]] = []
    kept: list[pa.RecordBatch] = []
    positions: list[int] = []
    for start, end, found in _halved(raw, 0, len(raw), layout, loose):
        if isinstance(found, str):
            bad.append((start, raw[start], found))
        else:
            kept.append(found)
            positions += range(start, end)
    parsed = joined(kept, loose)
    if loose != schema:
        parsed, positions, failed = _with_times(parsed, positions, schema)
        bad += [(at, raw[at], reason) for at, reason in failed]
    return Parsed(parsed, positions, sorted(bad, key=lambda each: each[0]), len(raw))


def _halved(
    raw: list[RawRow], start: int, end: int, layout: Layout, schema: pa.Schema
) -> Iterator[tuple[int, int, pa.RecordBatch | str]]:
    """Ranges of rows with their columns, or single rows with the reason why they have none."""
    if start == end:
        return
    reason = "a quote in it is never closed"
    if not any(row.broken for row in raw[start:end]):
        text = b"".join(row.text for row in raw[start:end])
        try:
            rows = _columns(text if text.endswith((b"\n", b"\r")) else text + b"\n", layout, schema)
            if rows.num_rows == end - start:
                yield start, end, rows
                return
            reason = f"it is {rows.num_rows} rows"
        except _PARSE_ERRORS as problem:
            reason = _reason(problem, layout)
    if end - start == 1:
        yield start, end, reason
        return
    middle = (start + end) // 2
    yield from _halved(raw, start, middle, layout, schema)
    yield from _halved(raw, middle, end, layout, schema)


def _reason(problem: Exception, layout: Layout) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8, or has the wrong number of columns"
    if match := _WRONG_WIDTH.search(str(problem)):
        return f"expected {match[1]} columns, got {match[2]}"
    if match := _WRONG_VALUE.search(str(problem)):
        return f'column "{layout.names[int(match[1])]}": {match[3]} for type {match[2]}'
    return str(problem)


def _with_times(
    loose: pa.RecordBatch, positions: list[int], schema: pa.Schema
) -> tuple[pa.RecordBatch, list[int], list[tuple[int, str]]]:
    """Turn the text of time columns into times, one by one."""
    times = [i for i, field in enumerate(schema) if kind.is_timestamp(field.type)]
    only = pa.schema([schema.field(i) for i in times])

    def plain(texts: tuple[object, ...], only: pa.Schema) -> list[object]:
        return [_moment(text, field) for text, field in zip(texts, only, strict=True)]

    gathered = gather(zip(*(to_plain(loose.column(i)) for i in times), strict=True), only, plain)
    kept = loose.take(pa.array(gathered.positions, pa.int64()))
    arrays = list(kept.columns)
    for i, column in zip(times, gathered.rows.columns, strict=True):
        arrays[i] = column
    failed = [(positions[at], reason) for at, reason in gathered.failures]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return rows, [positions[at] for at in gathered.positions], failed


def _moment(text: object, field: pa.Field) -> object:
    try:
        return plain_value(parse_time(text) if isinstance(text, str) else None, field)
    except RowFailure as failure:
        prefix = f'column "{field.name}": '
        raise RowFailure(prefix + failure.reason.removeprefix(prefix)) from None
