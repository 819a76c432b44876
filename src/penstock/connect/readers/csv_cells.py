"""Convert columns of text, finding the cells that cannot be.

The rules are those of Arrow's csv reader, so that a row is read the same whether or not its neighbours are
fine; only times are read more generously (see `connect.iso`): with a zone where the column has none, without
one where it has, and with more digits than microseconds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.iso import parse_time
from penstock.expr import compute as pc
from penstock.expr.failure import RowFailure
from penstock.expr.types import from_python

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
