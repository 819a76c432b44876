"""Windows that leave, of one shelf or several: together, in the order of results, and some of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import EngineError, FunctionError, RowFailure, TimeError
from penstock.expr import compute as pc
from penstock.expr.types import from_plain, to_plain, to_python
from penstock.expr.values import from_list, from_numpy
from penstock.frozen import dataclass
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import WindowContext, Windows
from penstock.stages.functions.rows import plain_rows_of
from penstock.stages.functions.windows import ApplyCaller, WindowFunctionFailure
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.arrays import build_column, build_time_column
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import Site
from penstock.stages.window.accumulators import AggregatePlan, SketchPlan, SumOverflow
from penstock.stages.window.folds import WindowRef
from penstock.stages.window.inputs import InputEvaluator
from penstock.stages.window.store import NOT_LIFTED, ClosedWindows, Objects, select_windows

_FEW = 1 << 16


def result_order(left: ClosedWindows) -> Ints | None:
    """The order of results, by (end, start, kind, index, slot); None where they stand so already.

    Stores mostly give windows slot by slot, each slot's in order. Where every slot has the same windows, as
    in a steady stream, that is a table to be read by columns. Else sorting by few different ends and keeping
    what is equal in its order is enough: that takes no comparisons.
    """
    if left.index is None and not left.kinds.any() and (left.slots[1:] >= left.slots[:-1]).all():
        if (left.ends[1:] >= left.ends[:-1]).all():
            return None
        n, width = len(left.slots), int(np.searchsorted(left.slots, left.slots[0], side="right"))
        if n % width == 0 and (left.slots[::width] == left.slots[width - 1 :: width]).all():
            table = left.starts.reshape(-1, width), left.ends.reshape(-1, width)
            if all((rows == rows[0]).all() and (rows[0, 1:] > rows[0, :-1]).all() for rows in table):
                return np.ascontiguousarray(np.arange(n).reshape(-1, width).T).reshape(-1)
        since = left.ends - left.ends.min()
        step = np.gcd.reduce(since)
        if since.max() // step < _FEW and (left.ends - left.starts == left.ends[0] - left.starts[0]).all():
            return np.argsort((since // step).astype(np.uint16), kind="stable")
    return np.lexsort((left.slots, window_index(left), left.kinds, left.starts, left.ends))


def bounds_at(left: ClosedWindows, windows: Ints) -> ClosedWindows:
    """Where and when some of the windows are."""
    return select_windows(
        ClosedWindows(left.kinds, left.slots, left.starts, left.ends, left.times, left.index), windows
    )


def concat_windows(lefts: Sequence[ClosedWindows]) -> ClosedWindows:
    """Where and when the windows of several shelves are; index -1 for those that are not count windows."""
    if len(lefts) == 1:
        return lefts[0]
    names = ("kinds", "slots", "starts", "ends", "times")
    kinds, slots, starts, ends, times = (np.concatenate([getattr(left, n) for left in lefts]) for n in names)
    return ClosedWindows(
        kinds, slots, starts, ends, times, np.concatenate([window_index(left) for left in lefts])
    )


def window_index(left: ClosedWindows) -> Ints:
    """The number of each count window among those of its key; -1 for other windows."""
    return np.full(len(left.slots), -1, np.int64) if left.index is None else left.index


# Windows that leave as rows: the key, the bounds, and what was made of the rows, by (end, start) per key.
#
# Registers become columns for all windows at once; only functions that users wrote are called window by
# window.


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """What became of some windows: result columns, and how many rows each window gave (None: one each)."""

    columns: list[pa.Array]
    counts: Ints | None = None


class ResultBuilder:
    """Makes the result rows of one step."""

    def __init__(
        self,
        op: Windows,
        up: Stream,
        *,
        lowered: dict[str, AggregatePlan | SketchPlan],
        lifting: InputEvaluator,
        keys: KeySlots,
        site: Site,
    ) -> None:
        self._op, self._up, self._keys, self._site = op, up, keys, site
        self._lowered, self._lifting = lowered, lifting
        self._resolved = op.resolve(up)
        self._time = up.require_time("a window")
        self._schema = op.outputs({IN: up})[OUT].schema
        self._apply = ApplyCaller(op.function, up) if op.function is not None else None
        self._labels = from_list([label for label, _ in self._resolved.windows], pa.string())

    def batch(self, lefts: Sequence[ClosedWindows], *, final: bool) -> Batch | None:
        """The results of windows, per key by (window_end, window_start); None if there are none."""
        lefts = [left for left in lefts if len(left.slots)]
        if not lefts:
            return None
        with _name_step(self._site):
            return self._batch(lefts, final=final)

    def _batch(self, lefts: Sequence[ClosedWindows], *, final: bool) -> Batch | None:
        made = [self._made(left) for left in lefts]
        all_ = concat_windows(lefts)
        order = result_order(all_)
        columns = [_concat_columns(parts) for parts in zip(*(each.columns for each in made), strict=True)]
        if self._apply is None and order is None:
            return Batch(self._rows(all_, columns, final=final), all_.times)
        order = np.arange(len(all_.slots)) if order is None else order
        if self._apply is None:
            places, there = from_numpy(order), bounds_at(all_, order)
            taken = [pc.take(column, places) for column in columns]
            return Batch(self._rows(there, taken, final=final), there.times)
        counts = np.concatenate([each.counts for each in made if each.counts is not None])
        return self._several(all_, order, columns, counts, final=final)

    def _several(
        self, all_: ClosedWindows, order: Ints, columns: list[pa.Array], counts: Ints, *, final: bool
    ) -> Batch | None:
        """Windows that gave any number of rows; the place among siblings is their order."""
        starts = np.cumsum(counts) - counts
        windows = np.repeat(order, counts[order])
        if not len(windows):
            return None
        first = np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
        sibling = np.arange(len(windows)) - first
        taken = [column.take(pa.array(starts[windows] + sibling)) for column in columns]
        alone = counts[windows] == 1
        rows = self._rows(bounds_at(all_, windows), taken, final=final)
        return Batch(rows, all_.times[windows], (np.where(alone, -1, sibling),))

    def _rows(self, left: ClosedWindows, columns: list[pa.Array], *, final: bool) -> pa.RecordBatch:
        """Result rows: the window of each, and its result columns."""
        whole = self._keys.columns_of(left.slots)
        whole += [self._labels.take(pa.array(left.kinds))] if self._resolved.has_labels else []
        whole += [build_time_column(left.starts, self._time), build_time_column(left.ends, self._time)]
        if self._resolved.has_counts:
            index = window_index(left)
            whole += [build_column(index, pa.int64(), index < 0)]
        whole += columns
        whole += [pa.repeat(pa.scalar(final), len(left.slots))] if self._resolved.early is not None else []
        return pa.RecordBatch.from_arrays(whole, schema=self._schema)

    def _made(self, left: ClosedWindows) -> ResultColumns:
        if self._apply is not None:
            return self._applied(left, self._apply)
        aggregates = self._op.aggregates or {}
        return ResultColumns([self._column(name, aggregate, left) for name, aggregate in aggregates.items()])

    def _column(self, name: str, aggregate: Aggregate, left: ClosedWindows) -> pa.Array:
        try:
            if name in self._lowered:
                return self._lowered[name].of(left)
            if isinstance(aggregate, Fold):
                return self._folded(name, aggregate, left)
            assert left.members is not None, "aggregates that are not lowered have rows"
            assert aggregate.value is not None, "aggregates of rows are lowered"
            from penstock.stages.window.row_store import aggregate_rows, window_segments

            found = window_segments(left.members, self._lifting.column_name(aggregate.value))
            return aggregate_rows(aggregate, found, aggregate.type(self._up))
        except WindowFunctionFailure as cause:
            raise cause.error(self._place(left, cause.place)).at(self._site.step, self._site.where) from cause
        except SumOverflow as cause:
            raise EngineError(
                f"{aggregate} of {self._place(left, cause.place)} does not fit its type",
                step=self._site.step,
                where=self._site.where,
                detail=cause.reason,
                hint='cast the value first, e.g. .cast("float64"), or use a shorter window',
            ) from cause

    def _folded(self, name: str, fold: Fold, left: ClosedWindows) -> pa.Array:
        calls = self._lifting.folds[name]
        results = []
        parts = self._parts(name, left)
        assert left.members is not None, "folds in Python have rows"
        offsets, places = left.members.offsets.tolist(), left.members.places
        for place, (start, end) in enumerate(pairwise(offsets)):
            mine = parts[places[start:end]].tolist()
            results.append(calls.result(mine, partial(self._place, left, place)))
        return from_plain(results, fold.type(self._up))

    def _parts(self, name: str, left: ClosedWindows) -> Objects:
        """What lift gave for each kept row; those from a snapshot are lifted now."""
        assert left.members is not None, "folds in Python have rows"
        lifted, rows = left.members.lifted, left.members.rows
        parts = lifted[self._lifting.in_python.index(name)] if lifted else np.full(rows.num_rows, NOT_LIFTED)
        unknown = np.flatnonzero([part is NOT_LIFTED for part in parts])
        if len(unknown):
            parts = parts.copy()
            plain = plain_rows_of(rows.select(self._up.schema.names).take(pa.array(unknown)))
            for place, values in zip(unknown.tolist(), plain, strict=True):
                parts[place] = self._lifting.folds[name].lift(values)
        return parts

    def _applied(self, left: ClosedWindows, calls: ApplyCaller) -> ResultColumns:
        given = []
        for place, rows in enumerate(_plain_window_rows(left, self._up)):
            this = self._this(left, place)
            given.append(calls.rows(rows, this, partial(self._place, left, place)))
        flat = [row for rows in given for row in rows]
        columns = [from_plain([row[field.name] for row in flat], field.type) for field in calls.schema]
        return ResultColumns(columns, np.array([len(rows) for rows in given], np.int64))

    def _this(self, left: ClosedWindows, place: int) -> WindowContext:
        """The window as the user sees it."""
        bounds = build_time_column(np.array([left.starts[place], left.ends[place]]), self._time)
        start, end = (_to_user_value(value, self._time.type) for value in to_plain(bounds))
        key = self._key_of(int(left.slots[place]))
        index = None if left.index is None else int(left.index[place])
        return WindowContext(start, end, index, self._resolved.windows[int(left.kinds[place])][0], key)

    def _key_of(self, slot: int) -> tuple[object, ...]:
        columns = self._keys.columns_of(np.array([slot], np.int64))
        return tuple(_to_user_value(to_plain(column)[0], column.type) for column in columns)

    def _place(self, left: ClosedWindows, place: int) -> str:
        """A window for an error message: which kind, its bounds, its key."""
        window = self._resolved.windows[int(left.kinds[place])][1]
        bounds = int(left.starts[place]), int(left.ends[place])
        return self.place_of(WindowRef(int(left.slots[place]), window, *bounds))

    def place_of(self, whose: WindowRef) -> str:
        """A window for an error message: which kind, its bounds, its key."""
        bounds = build_time_column(np.array([whose.start, whose.end]), self._time)
        start, end = (_to_user_value(value, self._time.type) for value in to_plain(bounds))
        key = self._key_of(whose.slot)
        named = ", ".join(f"{name}={value!r}" for name, value in zip(self._up.key, key, strict=True))
        return f"window {whose.window} from {start} to {end}" + (f" of key {named}" if named else "")


class _name_step:
    """Fills the step's name into errors of users' functions, and of times that their column cannot hold."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, FunctionError | TimeError):
            error.at(self._site.step, self._site.where)


def _plain_window_rows(left: ClosedWindows, up: Stream) -> list[list[dict[str, object]]]:
    """The input's rows of each window, as plain values; each kept row is made plain once."""
    assert left.members is not None, "functions of windows have rows"
    kept = plain_rows_of(left.members.rows.select(up.schema.names))
    bounds = left.members.offsets.tolist()
    places = left.members.places.tolist()
    return [[kept[place] for place in places[start:end]] for start, end in pairwise(bounds)]


def _concat_columns(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(list(parts))


def _to_user_value(value: object, type_: pa.DataType) -> object:
    """A value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
