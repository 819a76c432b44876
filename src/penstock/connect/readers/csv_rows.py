"""Csv text parsed into columns, with every bad row singled out.

Arrow's csv reader parses whole chunks. Alone it cannot keep three promises of docs/semantics.md: one value
that does not parse, or one byte that is not UTF-8, refuses the whole chunk (`invalid_row_handler` is called
for rows of the wrong width only); an unclosed quote swallows the rows after it; and neither tells the raw
text and the line of a bad row. So where Arrow fails, or finds another number of rows than there are, the
chunk is split into rows here, read again as text, and its columns are converted one by one, which finds the
bad cells.

The rules are Arrow's, so that a row is read the same whether or not its neighbours are good; only times are
read more generously: with a zone where the column has none, without one where it has, and with more digits
than microseconds.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.types as kind

from penstock.connect.batching import RowRange
from penstock.connect.conversion import ConvertedRows, concat_batches, empty_batch
from penstock.connect.protocol import BadRow
from penstock.connect.readers.chunks import Chunk, show_bytes
from penstock.connect.readers.text import parse_time
from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.values import from_python, microseconds_of, numbers_of
from penstock.frozen import dataclass

Reasons = dict[int, str]
"""Why rows are bad, by position."""
_PARSE_ERRORS = (pa.ArrowInvalid, UnicodeDecodeError)  # the latter: Arrow quotes bad bytes in its message
_MIN_BYTES_FOR_THREADS = 1 << 18
_YEAR_1 = microseconds_of(datetime.min)
_MAX_ROW_BYTES = 1 << 26
"""A quote still open after this many bytes is taken for a mistake."""


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How a file is written: its columns in their order, the delimiter, and the texts that stand for null."""

    names: tuple[str, ...]
    delimiter: str
    nulls: tuple[str, ...]

    @property
    def skips_blank_lines(self) -> bool:
        """Return whether an empty line is no row: where there is but one column, it is a null."""
        return len(self.names) > 1


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row: its bytes, the lines before it in its chunk, and whether a quote in it is never closed."""

    text: bytes
    n_lines_before: int
    is_unclosed: bool


def parse_rows(chunk: Chunk, start: int, place: str, layout: CsvLayout, schema: pa.Schema) -> RowRange:
    """Return the schema's columns of a chunk, from row number `start` on; `place` is where it is from."""
    raw = None
    try:
        rows = _parse_columns(chunk.text, layout, schema)
    except _PARSE_ERRORS:
        raw = _raw_rows(chunk, layout)
    else:
        if b'"' in chunk.text and rows.num_rows != _count_rows_by_quotes(chunk.text):
            raw = _raw_rows(chunk, layout)
            if rows.num_rows == len(raw) and not any(row.is_unclosed for row in raw):
                raw = None
    if raw is None:
        return RowRange.of_good(rows, start)
    converted = _convert_raw_rows(raw, layout, schema)
    bad = [
        BadRow(show_bytes(raw[at].text), reason, chunk.locate(place, raw[at].n_lines_before))
        for at, reason in converted.failures
    ]
    return RowRange.of_converted(converted, bad, start)


def infer_types(text: bytes, layout: CsvLayout) -> pa.Schema:
    """Return the types that the values look like, and text where rows cannot hold that type."""
    # Why: rows of the wrong width, or that are not text, are bad rows later, and must not hide the types of
    # the others. Arrow hands such a row on only as text, so other bytes are shown as escapes.
    readable = text.decode("utf-8", errors="backslashreplace").encode()
    schema = _read_csv(readable, layout, None, lambda _: "skip").schema
    return pa.schema([(field.name, _storable_type(field.type)) for field in schema])


def split_rows(text: bytes, delimiter: str) -> Iterator[RawRow]:
    """Yield the rows of a text, blank lines included.

    A quoted field may hold delimiters and ends of lines; a quote counts only at the start of a field. A quote
    that is never closed breaks its own line only.
    """
    n_lines = 0
    for match in _row_pattern(delimiter).finditer(text):
        raw = match[0]
        if raw:
            yield RawRow(raw, n_lines, match["unclosed"] is not None)
            n_lines += raw.count(b"\n")


def end_of_last_row(text: bytes, delimiter: str) -> int:
    """Return where the last whole row of a text ends; what follows may close an open quote."""
    if b'"' not in text:
        return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1  # after a last \r may come the \n to it
    whole = _whole_rows_pattern(delimiter).match(text)
    end = whole.end() if whole else 0
    if len(text) - end < _MAX_ROW_BYTES:
        return end
    return text.find(b"\n", end) + 1  # the line with the mistake is a row of its own


def _parse_columns(text: bytes, layout: CsvLayout, schema: pa.Schema) -> pa.RecordBatch:
    """Parse with Arrow alone; raise when any row does not fit."""
    if not text.strip(b"\r\n") and (layout.skips_blank_lines or not text):
        return empty_batch(schema)
    if len(layout.names) > len(schema) and not text.isascii():
        text.decode()  # Arrow looks only at columns that it reads, and a row that is not UTF-8 is bad
    rows = concat_batches(_read_csv(text, layout, schema).to_batches(), schema)
    for column in rows.columns:
        _check_range(column)
    return rows


def _check_range(column: pa.Array) -> None:
    """Raise ArrowInvalid for values that Arrow parses but that no row can hold."""
    if kind.is_decimal(column.type):
        column.validate(full=True)
    elif kind.is_timestamp(column.type) and len(column) and numbers_of(column).min() < _YEAR_1:
        raise pa.ArrowInvalid("a time is before the year 1")


def _count_rows_by_quotes(text: bytes) -> int:
    """Return how many lines end outside quotes, if quotes come in pairs: an estimate to compare with."""
    codes = np.frombuffer(text, np.uint8)
    inside = np.logical_xor.accumulate(codes == ord('"'))
    return int(np.count_nonzero((codes == ord("\n")) & ~inside))


def _raw_rows(chunk: Chunk, layout: CsvLayout) -> list[RawRow]:
    rows = split_rows(chunk.text, layout.delimiter)
    return [row for row in rows if row.text.strip(b"\r\n") or not layout.skips_blank_lines]


def _convert_raw_rows(raw: list[RawRow], layout: CsvLayout, schema: pa.Schema) -> ConvertedRows:
    """Set aside rows that are not text, then those of the wrong width, then those with a wrong value."""
    reasons = {at: reason for at, row in enumerate(raw) if (reason := _text_error(row)) is not None}
    positions = [at for at in range(len(raw)) if at not in reasons]
    texts, wrong_width = _parse_as_text([raw[at] for at in positions], layout, schema)
    reasons.update((positions[at], reason) for at, reason in wrong_width.items())
    positions = [at for at in positions if at not in reasons]
    rows, wrong_value = _convert_texts(texts, schema)
    reasons.update((positions[at], reason) for at, reason in wrong_value.items())
    positions = [at for at in positions if at not in reasons]
    return ConvertedRows(rows, positions, sorted(reasons.items()))


def _text_error(row: RawRow) -> str | None:
    if row.is_unclosed:
        return "a quote in it is never closed"
    try:
        row.text.decode()
    except UnicodeDecodeError as problem:
        return f"byte {problem.start + 1} of the row is not UTF-8"
    return None


def _parse_as_text(raw: list[RawRow], layout: CsvLayout, schema: pa.Schema) -> tuple[pa.RecordBatch, Reasons]:
    """Return all columns as strings, and the rows that have too many or too few of them."""
    strings = pa.schema([(name, pa.string()) for name in schema.names])
    wrong_width: Reasons = {}

    def set_aside(row: arrow_csv.InvalidRow) -> str:
        wrong_width[row.number - 1] = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        return "skip"

    if not raw:
        return empty_batch(strings), wrong_width
    # Why: a row may end in \r, and the next that is left may be \n alone; together they would end one row.
    lines = [row.text if row.text.endswith(b"\n") else row.text.removesuffix(b"\r") + b"\n" for row in raw]
    table = _read_csv(b"".join(lines), layout, strings, set_aside)
    assert table.num_rows + len(wrong_width) == len(raw), "Arrow and split_rows agree on where rows end"
    return concat_batches(table.to_batches(), strings), wrong_width


def _convert_texts(texts: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, Reasons]:
    """Return the rows whose cells all fit their columns' types, and why each other row does not."""
    reasons: Reasons = {}
    columns = []
    for field in schema:
        column, wrong = _convert_column(texts.column(field.name), field.type)
        columns.append(column)
        for at, reason in wrong.items():
            reasons.setdefault(at, f'column "{field.name}": {reason}')
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if reasons:
        rows = rows.take(pa.array([at for at in range(rows.num_rows) if at not in reasons], pa.int64()))
    return rows, reasons


def _convert_column(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Reasons]:
    """Return the column, null where a cell does not fit, and why these do not."""
    if kind.is_string(type):
        return texts, {}
    if kind.is_timestamp(type):
        return _convert_times(texts, type)
    trimmed = pc.utf8_trim(texts, " \t")
    wrong = _find_wrong_cells(trimmed, type, 0)
    if wrong:
        is_wrong = pa.array([at in wrong for at in range(len(texts))])
        trimmed = pc.if_else(is_wrong, None, trimmed)
    return trimmed.cast(type), {
        at: f"invalid value {texts[at].as_py()!r:.80} for type {type}" for at in wrong
    }


def _find_wrong_cells(texts: pa.Array, type: pa.DataType, start: int) -> set[int]:
    """Bisect, because Arrow says only that some cell is wrong."""
    try:
        texts.cast(type)
        return set()
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return {start}
    half = len(texts) // 2
    return _find_wrong_cells(texts[:half], type, start) | _find_wrong_cells(texts[half:], type, start + half)


def _convert_times(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Reasons]:
    micros: list[object] = []
    reasons: Reasons = {}
    for at, text in enumerate(texts.to_pylist()):
        try:
            micros.append(None if text is None else from_python(parse_time(text), type))
        except RowFailure as failure:
            micros.append(None)
            reasons[at] = failure.reason
    return pa.array(micros, pa.int64()).cast(type), reasons


def _storable_type(type: pa.DataType) -> pa.DataType:
    if kind.is_null(type) or kind.is_time(type) or kind.is_binary(type) or kind.is_duration(type):
        return pa.string()
    return pa.timestamp("us", type.tz) if kind.is_timestamp(type) else type


def _read_csv(
    text: bytes,
    layout: CsvLayout,
    schema: pa.Schema | None,
    on_wrong_width: Callable[[arrow_csv.InvalidRow], str] | None = None,
) -> pa.Table:
    # Why: one block, because Arrow would cut blocks at ends of lines, also inside quotes; one thread, because
    # only then are the rows numbered that go to `on_wrong_width`.
    threads = on_wrong_width is None and len(text) > _MIN_BYTES_FOR_THREADS
    if text.startswith(BOM_UTF8):  # only the file's own mark is none of its text; Arrow removes one
        text = BOM_UTF8 + text
    return arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(column_names=layout.names, block_size=len(text) + 1, use_threads=threads),
        arrow_csv.ParseOptions(
            delimiter=layout.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=layout.skips_blank_lines,
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


@lru_cache
def _row_pattern(delimiter: str) -> re.Pattern[bytes]:
    fields, field = _field_patterns(delimiter)
    unclosed = rb'(?P<unclosed>"[^\r\n]*+)'  # takes the rest of its line, so only the last field can be it
    return re.compile(fields + rb"(?:" + field + rb"|" + unclosed + rb")(?:\r\n|\n|\r|\Z)")


@lru_cache
def _whole_rows_pattern(delimiter: str) -> re.Pattern[bytes]:
    """Return a pattern of all rows that are finished: a loop in Python would cost more than the parsing."""
    fields, field = _field_patterns(delimiter)
    return re.compile(rb"(?:" + fields + field + rb"(?:\r\n|\n|\r(?!\Z)))*+")


def _field_patterns(delimiter: str) -> tuple[bytes, bytes]:
    """Return the patterns of any number of fields with a delimiter after each, and of one field."""
    escaped = re.escape(delimiter.encode())
    plain = rb"[^" + escaped + rb"\r\n]*+"
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"' + plain + rb'|(?!")' + plain + rb")"
    return rb"(?:" + field + escaped + rb")*+", field
