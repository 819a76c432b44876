"""Convert columns of text, finding the cells that cannot be.

The rules are those of Arrow's csv reader, so that a row is read the same whether or not its neighbours are
fine; only times are read more generously (see `connect.iso`): with a zone where the column has none, without
one where it has, and with more digits than microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.types as kind

from penstock.connect.batches import concat_batches, empty_batch
from penstock.connect.infer import parse_time
from penstock.connect.readers.text import Chunk
from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.types import from_python
from penstock.frozen import dataclass

Reasons = dict[int, str]


def convert(texts: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, Reasons]:
    """The rows whose cells all fit their columns' types, and why each other row does not."""
    reasons: Reasons = {}
    columns = []
    for field in schema:
        column, wrong = _column(texts.column(field.name), field.type)
        columns.append(column)
        for at, reason in wrong.items():
            reasons.setdefault(at, f'column "{field.name}": {reason}')
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if reasons:
        rows = rows.take(pa.array([at for at in range(rows.num_rows) if at not in reasons], pa.int64()))
    return rows, reasons


def _column(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Reasons]:
    """The column, null where a cell does not fit, and why it does not."""
    if kind.is_string(type):
        return texts, {}
    if kind.is_timestamp(type):
        return _times(texts, type)
    trimmed = pc.utf8_trim(texts, " \t")
    wrong = _wrong_cells(trimmed, type, 0)
    if wrong:
        is_wrong = pa.array([at in wrong for at in range(len(texts))])
        trimmed = pc.if_else(is_wrong, None, trimmed)
    return trimmed.cast(type), {
        at: f"invalid value {texts[at].as_py()!r:.80} for type {type}" for at in wrong
    }


def _wrong_cells(texts: pa.Array, type: pa.DataType, start: int) -> set[int]:
    """Arrow says only that some cell is wrong: halve until each wrong one stands alone."""
    try:
        texts.cast(type)
        return set()
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return {start}
    half = len(texts) // 2
    return _wrong_cells(texts[:half], type, start) | _wrong_cells(texts[half:], type, start + half)


def _times(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Reasons]:
    micros: list[object] = []
    reasons: Reasons = {}
    for at, text in enumerate(texts.to_pylist()):
        try:
            micros.append(None if text is None else from_python(parse_time(text), type))
        except RowFailure as failure:
            micros.append(None)
            reasons[at] = failure.reason
    return pa.array(micros, pa.int64()).cast(type), reasons


# Where the rows of csv text begin and end.
#
# A quoted field may hold delimiters and ends of lines; a quote counts only at the start of a field. A quote
# that is never closed breaks its own line only, so that one slip cannot swallow the rest of a file.

_LONGEST_ROW = 1 << 26
"""A quote still open after this many bytes is taken for a slip."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row: its bytes, the line it begins on, and whether a quote in it is never closed."""

    text: bytes
    line: int
    broken: bool


def split_rows(text: bytes, delimiter: str, first_line: int = 1) -> Iterator[RawRow]:
    """The rows of the text, blank lines included."""
    line = first_line
    for match in _row(delimiter).finditer(text):
        raw = match[0]
        if raw:
            yield RawRow(raw, line, match["broken"] is not None)
            line += raw.count(b"\n")


def end_of_last_row(text: bytes, delimiter: str) -> int:
    """Where the last whole row of unfinished text ends: an open quote may be closed by what follows."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    whole = _whole_rows(delimiter).match(text)
    end = whole.end() if whole else 0
    if len(text) - end < _LONGEST_ROW:
        return end
    return text.find(b"\n", end) + 1  # the line with the slip is a row of its own


def count_rows_by_quotes(text: bytes) -> int:
    """How many lines end outside quotes, if quotes come in pairs; a guess, to be compared with a count."""
    if b'"' not in text:
        return text.count(b"\n")
    codes = np.frombuffer(text, np.uint8)
    inside = np.logical_xor.accumulate(codes == ord('"'))
    return int(np.count_nonzero((codes == ord("\n")) & ~inside))


@lru_cache
def _row(delimiter: str) -> re.Pattern[bytes]:
    fields, field = _fields(delimiter)
    broken = rb'(?P<broken>"[^\r\n]*+)'  # takes the rest of its line, so only the last field can be it
    return re.compile(fields + rb"(?:" + field + rb"|" + broken + rb")(?:\r\n|\n|\r|\Z)")


@lru_cache
def _whole_rows(delimiter: str) -> re.Pattern[bytes]:
    """All rows that are finished, in one match: a loop in Python would cost more than the parsing."""
    fields, field = _fields(delimiter)
    return re.compile(rb"(?:" + fields + field + rb"(?:\r\n|\n|\r(?!\Z)))*+")


def _fields(delimiter: str) -> tuple[bytes, bytes]:
    """Patterns of any number of fields that a delimiter ends, and of one field."""
    mark = re.escape(delimiter.encode())
    plain = rb"[^" + mark + rb"\r\n]*+"
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"' + plain + rb'|(?!")' + plain + rb")"
    return rb"(?:" + field + mark + rb")*+", field


# Parse csv text of known columns; single out the rows that cannot be parsed.
#
# The quick way is Arrow's own reader on a whole chunk. When that fails, or when the number of rows it
# finds is not the number that stand there (an unclosed quote), the chunk is read again as text and its
# columns are converted one by one, which finds the cells that are to blame; see `csv_cells`.

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
class ParsedChunk:
    """The rows of a chunk that could be parsed, where they stood, and the others with the reason."""

    rows: pa.RecordBatch
    positions: list[int]
    bad: list[tuple[int, RawRow, str]]
    n_rows: int


def parse_chunk(chunk: Chunk, layout: Layout, schema: pa.Schema) -> ParsedChunk:
    """The chunk's columns that the schema names."""
    try:
        rows = _columns(chunk.text, layout, schema)
    except _PARSE_ERRORS:  # some row is to blame: find it
        return _parse_rows(_raw_rows(chunk, layout), layout, schema)
    if b'"' in chunk.text and rows.num_rows != count_rows_by_quotes(chunk.text):
        raw = _raw_rows(chunk, layout)
        if rows.num_rows != len(raw) or any(row.broken for row in raw):
            return _parse_rows(raw, layout, schema)
    return ParsedChunk(rows, list(range(rows.num_rows)), [], rows.num_rows)


def infer_types(text: bytes, layout: Layout) -> pa.Schema:
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
    rows = split_rows(chunk.text, layout.delimiter, chunk.line)
    return [row for row in rows if not layout.is_blank(row.text)]


def _columns(text: bytes, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    """Arrow's reading of the text; raises when any row does not fit."""
    if not text.strip(b"\r\n") and (len(layout.names) > 1 or not text):
        return empty_batch(schema)
    return concat_batches(_read(text, layout, schema).to_batches(), schema)


def _parse_rows(raw: list[RawRow], layout: Layout, schema: pa.Schema) -> ParsedChunk:
    """Set aside rows that are not text, then rows of the wrong width, then rows with a wrong value."""
    reasons = {at: reason for at, row in enumerate(raw) if (reason := _not_text(row)) is not None}
    left = [at for at in range(len(raw)) if at not in reasons]
    texts, wrong_width = _as_text([raw[at] for at in left], layout, schema)
    reasons.update((left[at], reason) for at, reason in wrong_width.items())
    left = [at for at in left if at not in reasons]
    rows, wrong_value = convert(texts, schema)
    reasons.update((left[at], reason) for at, reason in wrong_value.items())
    bad = [(at, raw[at], reasons[at]) for at in sorted(reasons)]
    return ParsedChunk(rows, [at for at in left if at not in reasons], bad, len(raw))


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
    return concat_batches(table.to_batches(), strings), wrong


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
