"""Closed windows as result rows: the key, the bounds, and the aggregates, by (end, start) per key.

Accumulators become columns for all windows at once; only functions that users wrote are called window by
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import EngineError, FunctionError, RowFailure, TimeError
from penstock.expr import compute as pc
from penstock.expr.values import from_list, from_numpy, from_plain, to_plain, to_python
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.windows import WindowContext, Windows
from penstock.stages.functions.calls import ApplyCaller, WindowFunctionFailure, plain_rows_of
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.input import NOT_LIFTED, build_column, build_time_column
from penstock.stages.stage import StageContext
from penstock.stages.window.accumulators import AggregatePlan, SumOverflow
from penstock.stages.window.folds import WindowRef
from penstock.stages.window.inputs import InputEvaluator
from penstock.stages.window.store import ClosedWindows, window_index


class ResultBuilder:
    """Builds the result rows of one step."""

    def __init__(
        self,
        op: Windows,
        up: Stream,
        *,
        plans: dict[str, AggregatePlan],
        inputs: InputEvaluator,
        keys: KeySlots,
        site: StageContext,
    ) -> None:
        self._op, self._up, self._keys, self._site = op, up, keys, site
        self._plans, self._inputs = plans, inputs
        self._resolved = op.resolve(up)
        self._time = up.require_time("a window")
        self._schema = op.outputs({IN: up})[OUT].schema
        self._apply = ApplyCaller(op.function, up) if op.function is not None else None
        self._labels = from_list([label for label, _ in self._resolved.windows], pa.string())

    def build(self, closed: Sequence[ClosedWindows], *, final: bool) -> Batch | None:
        """Build the results of windows, per key by (window_end, window_start); None if there are none."""
        closed = [part for part in closed if len(part.slots)]
        if not closed:
            return None
        aggregates = self._op.aggregates or {}
        try:
            if self._apply is not None:
                return self._build_applied(closed, self._apply, final=final)
            columns = []
            for name, aggregate in aggregates.items():
                # Why not always the same: this is on the path of every result.
                build = self._known_column if name in self._site.history.added else self._column
                parts = [build(name, aggregate, part) for part in closed]
                columns.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
            windows = ClosedWindows.concat([replace(part, cells=()) for part in closed])
            order = result_order(windows)
            if order is not None:
                places = from_numpy(order)
                columns = [pc.take(column, places) for column in columns]
                windows = windows.bounds_at(order)
            return Batch(self._rows(windows, columns, final=final), windows.times)
        except (FunctionError, TimeError) as error:  # of users' functions, and of times out of range
            error.at(self._site.step, self._site.where)
            raise

    def describe(self, ref: WindowRef) -> str:
        """Describe a window for an error message: which kind, its bounds, its key."""
        start, end = self._bounds(ref.start, ref.end)
        key = self._key_of(ref.slot)
        named = ", ".join(f"{name}={value!r}" for name, value in zip(self._up.key, key, strict=True))
        return f"window {ref.window} from {start} to {end}" + (f" of key {named}" if named else "")

    def _build_applied(
        self, closed: Sequence[ClosedWindows], calls: ApplyCaller, *, final: bool
    ) -> Batch | None:
        """Build the rows that a user's function of windows returns: any number for each window."""
        rows = [
            calls.rows(members, self._this_window(part, place), partial(self._describe, part, place))
            for part in closed
            for place, members in enumerate(_plain_members(part, self._up))
        ]
        counts = np.array([len(of_one) for of_one in rows], np.int64)
        flat = [row for of_one in rows for row in of_one]
        if not flat:
            return None
        windows = ClosedWindows.concat([replace(part, cells=()) for part in closed])
        order = result_order(windows)
        order = np.arange(len(counts)) if order is None else order
        starts = np.cumsum(counts) - counts
        owners = np.repeat(order, counts[order])  # the window of each result row
        # The place among the rows of one window is their order downstream; -1 where there is only one.
        sibling = np.arange(len(owners)) - np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
        places = pa.array(starts[owners] + sibling)
        columns = [
            from_plain([row[field.name] for row in flat], field.type).take(places) for field in calls.schema
        ]
        batch = self._rows(windows.bounds_at(owners), columns, final=final)
        return Batch(batch, windows.times[owners], (np.where(counts[owners] == 1, -1, sibling),))

    def _rows(self, windows: ClosedWindows, columns: list[pa.Array], *, final: bool) -> pa.RecordBatch:
        """Put the window of each result row before its result columns."""
        whole = self._keys.columns_of(windows.slots)
        whole += [self._labels.take(pa.array(windows.kinds))] if self._resolved.has_labels else []
        whole += [build_time_column(bounds, self._time) for bounds in (windows.starts, windows.ends)]
        if self._resolved.has_counts:
            index = window_index(windows)
            whole += [build_column(index, pa.int64(), index < 0)]
        whole += columns
        whole += [pa.repeat(pa.scalar(final), len(windows.slots))] if self._resolved.early is not None else []
        return pa.RecordBatch.from_arrays(whole, schema=self._schema)

    def _known_column(self, name: str, aggregate: Aggregate, closed: ClosedWindows) -> pa.Array:
        """Return the results of an aggregate; null in windows that may have rows from before it was added."""
        is_known = closed.starts >= self._site.history.added[name]
        column = self._column(name, aggregate, closed.at(np.flatnonzero(is_known)))
        return column.take(pa.array(np.cumsum(is_known) - 1, mask=~is_known))

    def _column(self, name: str, aggregate: Aggregate, closed: ClosedWindows) -> pa.Array:
        try:
            if name in self._plans:
                return self._plans[name](closed)
            if isinstance(aggregate, Fold):
                return self._fold_rows(name, aggregate, closed)
            assert closed.members is not None, "aggregates without a plan have rows"
            assert aggregate.value is not None, "aggregates of rows are planned"
            from penstock.stages.window.row_aggregates import aggregate_rows, window_segments

            segments = window_segments(closed.members, self._inputs.column_name(aggregate.value))
            return aggregate_rows(aggregate, segments, aggregate.type(self._up))
        except WindowFunctionFailure as cause:
            error = cause.error(self._describe(closed, cause.place))
            raise error.at(self._site.step, self._site.where) from cause
        except SumOverflow as cause:
            raise EngineError(
                f"{aggregate} of {self._describe(closed, cause.place)} does not fit its type",
                step=self._site.step,
                where=self._site.where,
                detail=cause.reason,
                hint='cast the value first, e.g. .cast("float64"), or use a shorter window',
            ) from cause

    def _fold_rows(self, name: str, fold: Fold, closed: ClosedWindows) -> pa.Array:
        """Fold the kept rows of each window in Python; rows from a snapshot are lifted now."""
        assert closed.members is not None, "folds in Python have rows"
        caller, members = self._inputs.fold_callers[name], closed.members
        parts = np.full(members.rows.num_rows, NOT_LIFTED)
        if members.lifted:
            parts = members.lifted[self._inputs.python_folds.index(name)]
        unknown = np.flatnonzero([part is NOT_LIFTED for part in parts])
        if len(unknown):
            parts = parts.copy()
            plain = plain_rows_of(members.rows.select(self._up.schema.names).take(pa.array(unknown)))
            for place, values in zip(unknown.tolist(), plain, strict=True):
                parts[place] = caller.lift(values)
        results = []
        for window, (start, end) in enumerate(pairwise(members.offsets.tolist())):
            of_window = parts[members.places[start:end]].tolist()
            results.append(caller.result(of_window, partial(self._describe, closed, window)))
        return from_plain(results, fold.type(self._up))

    def _this_window(self, closed: ClosedWindows, place: int) -> WindowContext:
        """Return a window as the user sees it."""
        start, end = self._bounds(int(closed.starts[place]), int(closed.ends[place]))
        key = self._key_of(int(closed.slots[place]))
        index = None if closed.index is None else int(closed.index[place])
        return WindowContext(start, end, index, self._resolved.windows[int(closed.kinds[place])][0], key)

    def _describe(self, closed: ClosedWindows, place: int) -> str:
        window = self._resolved.windows[int(closed.kinds[place])][1]
        bounds = int(closed.starts[place]), int(closed.ends[place])
        return self.describe(WindowRef(int(closed.slots[place]), window, *bounds))

    def _bounds(self, start: int, end: int) -> tuple[object, object]:
        bounds = build_time_column(np.array([start, end]), self._time)
        first, last = (_to_user_value(value, self._time.type) for value in to_plain(bounds))
        return first, last

    def _key_of(self, slot: int) -> tuple[object, ...]:
        columns = self._keys.columns_of(np.array([slot], np.int64))
        return tuple(_to_user_value(to_plain(column)[0], column.type) for column in columns)


def result_order(windows: ClosedWindows) -> Ints | None:
    """Return the order of results, by (end, start, kind, index, slot); None if they stand in it already."""
    slots, starts, ends = windows.slots, windows.starts, windows.ends
    if windows.index is None and not windows.kinds.any() and (slots[1:] >= slots[:-1]).all():
        # Why: stores mostly return windows slot by slot. Then a stable sort by the ends alone is enough, and
        # where the ends are few multiples of one step, a radix sort of 16 bits: twenty times faster.
        if (ends[1:] >= ends[:-1]).all():
            return None
        since = ends - ends.min()
        step = np.gcd.reduce(since)
        if since.max() // step < 1 << 16 and (ends - starts == ends[0] - starts[0]).all():
            return np.argsort((since // step).astype(np.uint16), kind="stable")
    return np.lexsort((slots, window_index(windows), windows.kinds, starts, ends))


def _plain_members(closed: ClosedWindows, up: Stream) -> list[list[dict[str, object]]]:
    """Return the input's rows of each window as plain values; each kept row is converted once."""
    assert closed.members is not None, "functions of windows have rows"
    rows = plain_rows_of(closed.members.rows.select(up.schema.names))
    places = closed.members.places.tolist()
    bounds = pairwise(closed.members.offsets.tolist())
    return [[rows[place] for place in places[start:end]] for start, end in bounds]


def _to_user_value(value: object, type_: pa.DataType) -> object:
    """Return a value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
