"""Check that a fold of your own keeps the laws that windows rely on.

Windows combine parts in any grouping, and in any order unless the fold says otherwise. A `combine` that
is not associative gives answers that depend on how rows happened to be sliced; this finds that in a test.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

from penstock import read
from penstock.errors import SchemaError
from penstock.expr import to_plain
from penstock.operators.aggregates import Fold
from penstock.operators.row import Row

MOST_ROWS = 12
"""Triples of parts grow with the third power: so many rows are enough to find what is wrong."""


def check_associative(
    fold: Fold, rows: Sequence[object], *, schema: object = None, rel: float = 1e-9
) -> None:
    """Raise an AssertionError with an example if a fold breaks a law on these rows.

    Checked on all triples of (at most twelve) rows: `zero` changes nothing on either side, combining is
    associative and, unless the fold says `commutative=False`, commutative. Floats may differ by `rel`. As in
    a window, rows with a null in the fold's columns are left out, and `combine` may change what it is given.

    >>> import penstock as ps
    >>> total = ps.fold(lambda row: row.v, lambda a, b: a + b, 0.0, type="float64")
    >>> check_associative(total, [{"v": 1.0}, {"v": 2.0}, {"v": 4.0}])
    """
    if not isinstance(fold, Fold):
        raise SchemaError(f"{fold!r} is not a fold", hint="make one with ps.fold(lift, combine, zero)")

    def combine(a: Any, b: Any) -> Any:
        return fold.combine(copy.deepcopy(a), copy.deepcopy(b))

    parts = [fold.lift(row) for row in islice(_taken(fold, _rows(rows, schema)), MOST_ROWS)]
    for part in parts:
        _same(combine(fold.zero, part), part, f"combine(zero, {part!r}) is not {part!r}", rel)
        _same(combine(part, fold.zero), part, f"combine({part!r}, zero) is not {part!r}", rel)
    for a, b, c in product(parts, repeat=3):
        left, right = combine(combine(a, b), c), combine(a, combine(b, c))
        _same(left, right, f"combine is not associative on {a!r}, {b!r}, {c!r}: {left!r} / {right!r}", rel)
    for a, b in product(parts, repeat=2) if fold.commutative else ():
        left, right = combine(a, b), combine(b, a)
        told = f"combine is not commutative on {a!r}, {b!r}: {left!r} / {right!r}; say commutative=False"
        _same(left, right, told, rel)


def _taken(fold: Fold, rows: Iterable[Row]) -> Iterable[Row]:
    """The rows that a window would lift."""
    return (row for row in rows if all(row[name] is not None for name in fold.columns or ()))


def _rows(rows: Sequence[object], schema: object) -> Iterable[Row]:
    reader = read.rows(rows, schema=schema)
    for batch in reader.batches():
        columns = [to_plain(column) for column in batch.rows.columns]
        for values in zip(*columns, strict=True):
            yield Row(dict(zip(reader.schema.names, values, strict=True)), reader.schema)


def _same(left: Any, right: Any, told: str, rel: float) -> None:
    assert _alike(left, right, rel), told


def _alike(left: Any, right: Any, rel: float) -> bool:
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(_alike(a, b, rel) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) or isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=rel, abs_tol=rel)
    return bool(left == right)
