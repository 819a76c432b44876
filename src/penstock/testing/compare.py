"""Whether two tables hold the same rows, in any order, floats within the promised error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from penstock.expr import to_plain

RELATIVE = 1e-9


def difference(
    left: pa.Table, right: pa.Table, *, approximate: Sequence[str] = (), rel: float = 0.05
) -> str | None:
    """None when both hold the same rows as multisets; else a few lines that say where they differ.

    Columns named in `approximate` (sketches) may differ by the share `rel`.
    """
    if [(f.name, f.type) for f in left.schema] != [(f.name, f.type) for f in right.schema]:
        return f"schemas differ: {_types(left)} / {_types(right)}"
    if left.num_rows != right.num_rows:
        return f"{left.num_rows} rows / {right.num_rows} rows"
    loose = {left.schema.get_field_index(name) for name in approximate}
    ours, theirs = _rows(left, loose), _rows(right, loose)
    for mine, other in zip(ours, theirs, strict=True):
        same = all(
            _same(a, b, rel if i in loose else RELATIVE)
            for i, (a, b) in enumerate(zip(mine, other, strict=True))
        )
        if not same:
            return f"{_told(left, mine)}\n/ {_told(left, other)}"
    return None


def _rows(table: pa.Table, loose: set[int]) -> list[tuple[object, ...]]:
    columns = [to_plain(column.combine_chunks()) for column in table.columns]
    exact = [
        i for i, field in enumerate(table.schema) if i not in loose and not pa.types.is_floating(field.type)
    ]
    floats = [i for i in range(len(columns)) if i not in exact]

    def place(row: tuple[object, ...]) -> tuple[object, ...]:
        # Columns that must be equal first, so that rounding in the others cannot move a row far.
        return tuple(_sortable(row[i]) for i in exact) + tuple(_sortable(_rounded(row[i])) for i in floats)

    return sorted(zip(*columns, strict=True), key=place)


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def _sortable(value: object) -> tuple[int, str, object]:
    if value is None:
        return (0, "", 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, "", 0)
    if isinstance(value, (list, dict)):
        return (1, "json", repr(value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return (1, type(value).__name__, value)
    return (1, "number", value)


def _same(left: object, right: object, rel: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(
            left, right, rel_tol=rel, abs_tol=RELATIVE
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name], rel) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b, rel) for a, b in zip(left, right, strict=True))
    if rel > RELATIVE and isinstance(left, int) and isinstance(right, int):
        return math.isclose(left, right, rel_tol=rel)
    return left == right


def _told(table: pa.Table, row: tuple[object, ...]) -> dict[str, object]:
    return dict(zip(table.schema.names, row, strict=True))


def _types(table: pa.Table) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in table.schema)
