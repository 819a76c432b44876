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
from contextlib import suppress
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
from penstock.frozen import Frozen

Reasons = dict[int, str]
"""Why rows are bad, by position."""
_PARSE_ERRORS = (pa.ArrowInvalid, UnicodeDecodeError)  # the latter: Arrow quotes bad bytes in its message
_MIN_BYTES_FOR_THREADS = 1 << 18
_YEAR_1 = microseconds_of(datetime.min)
_MAX_ROW_BYTES = 1 << 26
"""A quote still open after this many bytes is taken for a mistake."""


class CsvLayout(Frozen):
    """How a file is written: its columns in their order, the delimiter, and the texts that stand for null."""

    names: tuple[str, ...]
    delimiter: str
    nulls: tuple[str, ...]

    @property
    def skips_blank_lines(self) -> bool:
        """Return whether an empty line is no row: where there is but one column, it is a null."""
        return len(self.names) > 1


class RawRow(Frozen):
    """One row: its bytes, the lines before it in its chunk, and whether a quote in it is never closed."""

    text: bytes
    n_lines_before: int
    is_unclosed: bool


def parse_rows(chunk: Chunk, start: int, place: str, layout: CsvLayout, schema: pa.Schema) -> RowRange:
    """Return the schema's columns of a chunk, from row number `start` on; `place` is where it is from."""
    rows = None
    with suppress(*_PARSE_ERRORS):
        rows = _parse_columns(chunk.text, layout, schema)
    if rows is not None and (b'"' not in chunk.text or rows.num_rows == _count_rows_by_quotes(chunk.text)):
        return RowRange.of_good(rows, start)
    raw = [
        row
        for row in split_rows(chunk.text, layout.delimiter)
        if row.text.strip(b"\r\n") or not layout.skips_blank_lines
    ]
    if rows is not None and rows.num_rows == len(raw) and not any(row.is_unclosed for row in raw):
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
    for match in _compile_patterns(delimiter)[0].finditer(text):
        raw = match[0]
        if raw:
            yield RawRow(raw, n_lines, match["unclosed"] is not None)
            n_lines += raw.count(b"\n")


def end_of_last_row(text: bytes, delimiter: str) -> int:
    """Return where the last whole row of a text ends; what follows may close an open quote."""
    if b'"' not in text:
        return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1  # after a last \r may come the \n to it
    whole = _compile_patterns(delimiter)[1].match(text)
    end = whole.end() if whole else 0
    if len(text) - end < _MAX_ROW_BYTES:
        return end
    return text.find(b"\n", end) + 1  # the line with the mistake is a row of its own


def _parse_columns(text: bytes, layout: CsvLayout, schema: pa.Schema) -> pa.RecordBatch:
    """Parse with Arrow alone; raise when any row does not fit."""
    if not text.strip(b"\r\n") and (layout.skips_blank_lines or not text):
        return empty_batch(schema)
    if not {*layout.names} <= {*schema.names} and not text.isascii():
        text.decode()  # Arrow looks only at columns that it reads, and a row that is not UTF-8 is bad
    rows = concat_batches(_read_csv(text, layout, schema).to_batches(), schema)
    for column in rows.columns:  # Arrow parses values that no row can hold
        if kind.is_decimal(column.type):
            column.validate(full=True)
        elif kind.is_timestamp(column.type) and len(column) and numbers_of(column).min() < _YEAR_1:
            raise pa.ArrowInvalid("a time is before the year 1")
    return rows


def _count_rows_by_quotes(text: bytes) -> int:
    """Return how many lines end outside quotes, if quotes come in pairs: an estimate to compare with."""
    codes = np.frombuffer(text, np.uint8)
    inside = np.logical_xor.accumulate(codes == ord('"'))
    return int(np.count_nonzero((codes == ord("\n")) & ~inside))


def _convert_raw_rows(raw: list[RawRow], layout: CsvLayout, schema: pa.Schema) -> ConvertedRows:
    """Set aside rows that are not text, then those of the wrong width, then those with a wrong value."""
    reasons: Reasons = {}
    for at, row in enumerate(raw):
        try:
            row.text.decode()
        except UnicodeDecodeError as problem:
            reasons[at] = f"byte {problem.start + 1} of the row is not UTF-8"
        if row.is_unclosed:
            reasons[at] = "a quote in it is never closed"
    positions = [at for at in range(len(raw)) if at not in reasons]
    texts, wrong_width = _parse_as_text([raw[at] for at in positions], layout, schema)
    reasons.update((positions[at], reason) for at, reason in wrong_width.items())
    positions = [at for at in positions if at not in reasons]
    columns = []
    for field in schema:
        column, wrong_values = _convert_column(texts.column(field.name), field.type)
        columns.append(column)
        for at, reason in wrong_values.items():
            reasons.setdefault(positions[at], f'column "{field.name}": {reason}')
    good = [at for at, position in enumerate(positions) if position not in reasons]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema).take(pa.array(good, pa.int64()))
    return ConvertedRows(rows, [positions[at] for at in good], sorted(reasons.items()))


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


def _convert_column(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Reasons]:
    """Return the column, null where a cell does not fit, and why these do not."""
    if kind.is_string(type):
        return texts, {}
    if kind.is_timestamp(type):
        micros: list[object] = [None] * len(texts)
        reasons: Reasons = {}
        for at, text in enumerate(texts.to_pylist()):
            try:
                micros[at] = None if text is None else from_python(parse_time(text), type)
            except RowFailure as failure:
                reasons[at] = failure.reason
        return pa.array(micros, pa.int64()).cast(type), reasons
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
            include_missing_columns=True,  # whoever reads the file has looked which may be missing
            column_types=schema,
            null_values=layout.nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


@lru_cache
def _compile_patterns(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the pattern of a row, and of all rows that are finished.

    The latter because a loop in Python would cost more than the parsing.
    """
    escaped = re.escape(delimiter.encode())
    plain = rb"[^" + escaped + rb"\r\n]*+"
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"' + plain + rb'|(?!")' + plain + rb")"
    fields = rb"(?:" + field + escaped + rb")*+"  # any number, with a delimiter after each
    unclosed = rb'(?P<unclosed>"[^\r\n]*+)'  # takes the rest of its line, so only the last field can be it
    row = fields + rb"(?:" + field + rb"|" + unclosed + rb")(?:\r\n|\n|\r|\Z)"
    return re.compile(row), re.compile(rb"(?:" + fields + field + rb"(?:\r\n|\n|\r(?!\Z)))*+")
