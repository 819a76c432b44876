"""The times of a source's rows, on columns: microseconds, and which rows may not have the time they have.

A time that is null, further than 2^61 us from 1970, or too far ahead of the clock is a row error of the
source; such rows go no further and do not move the watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expr.arrow.evaluated import numbers
from penstock.expr.failure import RowFailure
from penstock.frozen import dataclass
from penstock.operators.source import SourceTime
from penstock.stages.batch import Ints, Mask
from penstock.timing.column import LIMIT
from penstock.timing.duration import spell


@dataclass(frozen=True, slots=True)
class Times:
    """The time of each row, 0 for a row that has none, and which rows have none they may have.

    failed    None when no row can have failed
    greatest  of all times, where that is known and no row can have failed
    """

    micros: Ints
    failed: Mask | None
    greatest: int | None = None


def times_of(rows: pa.RecordBatch, spec: SourceTime | None, now: int) -> Times:
    """The times of a batch that came when the clock said `now`; a stream without time has zeros.

    Times out of range are held at the limit, so that they stay in int64.
    """
    if spec is None or spec.column is None:
        micros = np.full(rows.num_rows, 0 if spec is None else now, np.int64)
        return Times(micros, None, 0 if spec is None else now)
    column = rows.column(spec.column)
    values = numbers(column).astype(np.int64, copy=False)
    good = _all_good(column, values, spec)
    if good is not None:
        return good
    if spec.type.unit == "ns":
        micros, far = values // 1_000, np.zeros(len(values), np.bool_)
    else:
        most = LIMIT // spec.type.step
        far = (values > most) | (values < -most)
        micros = np.clip(values, -most - 1, most + 1) * spec.type.step
    failed = far | column.is_null().to_numpy(zero_copy_only=False)
    if spec.max_future is not None:
        failed |= micros > now + spec.max_future
    return Times(micros, np.asarray(failed, np.bool_))


def _all_good(column: pa.Array, values: Ints, spec: SourceTime) -> Times | None:
    """The times where a look at the least and the greatest shows that none can fail; None otherwise."""
    if column.null_count or not len(values) or spec.type.unit == "ns" or spec.max_future is not None:
        return None
    least, greatest = int(values.min()), int(values.max())
    most, step = LIMIT // spec.type.step, spec.type.step
    if least < -most or greatest > most:
        return None
    return Times(values if step == 1 else values * step, None, greatest * step)


def plain_times(rows: Sequence[Mapping[str, object]], spec: SourceTime | None, now: int) -> list[int] | None:
    """The times of plain rows; None where one of them may not have the time it has."""
    if spec is None or spec.column is None:
        return [0 if spec is None else now] * len(rows)
    if spec.type.unit == "ns" or spec.max_future is not None:
        return None
    step, found = spec.type.step, []
    for row in rows:
        value = row[spec.column]
        if not isinstance(value, int) or abs(value) * step > LIMIT:
            return None
        found.append(value * step)
    return found


def why_failed(value: object, spec: SourceTime, now: int) -> RowFailure | None:
    """Why a row with this value in its time column fails; None if it does not."""
    if not isinstance(value, int):
        return RowFailure(f'time column "{spec.column}" is null')
    micros = spec.type.micros(value)
    if abs(micros) > LIMIT:
        return RowFailure(f'time column "{spec.column}" is {micros} us, further than 2^61 us from 1970')
    if spec.max_future is not None and micros > now + spec.max_future:
        ahead, most = spell(micros - now), spell(spec.max_future)
        return RowFailure(f"the time is {ahead} ahead of the clock, and max_future is {most}")
    return None


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    """The rows that failed for one reason or the other; None if none can have."""
    if one is None or other is None:
        return other if one is None else one
    return one | other
