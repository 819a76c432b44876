"""Windows that leave as rows: the key, the bounds, and what was made of the rows, by (end, start) per key.

Registers become columns for all windows at once; only functions that users wrote are called window by window.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import EngineError, FunctionError, TimeError
from penstock.expr import compute as pc
from penstock.expr.arrays import from_list, from_numpy
from penstock.expr.failure import RowFailure
from penstock.expr.types import from_plain, to_plain, to_python
from penstock.frozen import dataclass
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.this_window import ThisWindow
from penstock.operators.windows import Windows
from penstock.stages.arrays import column_of, times_of
from penstock.stages.batch import Batch, Ints
from penstock.stages.combine_failure import Whose
from penstock.stages.keys import KeySlots
from penstock.stages.leaving import at, in_order_of_end, index_of, joined
from penstock.stages.lifting import Lifting
from penstock.stages.lowering import DoesNotFit, Lowered, LoweredSketch
from penstock.stages.site import Site
from penstock.stages.store import UNLIFTED, Left, Objects
from penstock.stages.user_calls import ApplyCalls, PartFailed, plain_rows_of


@dataclass(frozen=True, slots=True)
class Made:
    """What became of some windows: result columns, and how many rows each window gave (None: one each)."""

    columns: list[pa.Array]
    counts: Ints | None = None


class Results:
    """Makes the result rows of one step."""

    def __init__(
        self,
        op: Windows,
        up: Stream,
        *,
        lowered: dict[str, Lowered | LoweredSketch],
        lifting: Lifting,
        keys: KeySlots,
        site: Site,
    ) -> None:
        self._op, self._up, self._keys, self._site = op, up, keys, site
        self._lowered, self._lifting = lowered, lifting
        self._resolved = op.resolved(up)
        self._time = up.require_time("a window")
        self._schema = op.outputs({IN: up})[OUT].schema
        self._apply = ApplyCalls(op.function, up) if op.function is not None else None
        self._labels = from_list([label for label, _ in self._resolved.windows], pa.string())

    def batch(self, lefts: Sequence[Left], *, final: bool) -> Batch | None:
        """The results of windows, per key by (window_end, window_start); None if there are none."""
        lefts = [left for left in lefts if len(left.slots)]
        if not lefts:
            return None
        with _named(self._site):
            return self._batch(lefts, final=final)

    def _batch(self, lefts: Sequence[Left], *, final: bool) -> Batch | None:
        made = [self._made(left) for left in lefts]
        all_ = joined(lefts)
        order = in_order_of_end(all_)
        columns = [_one_after_another(parts) for parts in zip(*(each.columns for each in made), strict=True)]
        if self._apply is None and order is None:
            return Batch(self._rows(all_, columns, final=final), all_.times)
        order = np.arange(len(all_.slots)) if order is None else order
        if self._apply is None:
            places, there = from_numpy(order), at(all_, order)
            taken = [pc.take(column, places) for column in columns]
            return Batch(self._rows(there, taken, final=final), there.times)
        counts = np.concatenate([each.counts for each in made if each.counts is not None])
        return self._several(all_, order, columns, counts, final=final)

    def _several(
        self, all_: Left, order: Ints, columns: list[pa.Array], counts: Ints, *, final: bool
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
        rows = self._rows(at(all_, windows), taken, final=final)
        return Batch(rows, all_.times[windows], (np.where(alone, -1, sibling),))

    def _rows(self, left: Left, columns: list[pa.Array], *, final: bool) -> pa.RecordBatch:
        """Result rows: the window of each, and its result columns."""
        whole = self._keys.columns_of(left.slots)
        whole += [self._labels.take(pa.array(left.kinds))] if self._resolved.labelled else []
        whole += [times_of(left.starts, self._time), times_of(left.ends, self._time)]
        if self._resolved.counted:
            index = index_of(left)
            whole += [column_of(index, pa.int64(), index < 0)]
        whole += columns
        whole += [pa.repeat(pa.scalar(final), len(left.slots))] if self._resolved.early is not None else []
        return pa.RecordBatch.from_arrays(whole, schema=self._schema)

    def _made(self, left: Left) -> Made:
        if self._apply is not None:
            return self._applied(left, self._apply)
        aggregates = self._op.aggregates or {}
        return Made([self._column(name, aggregate, left) for name, aggregate in aggregates.items()])

    def _column(self, name: str, aggregate: Aggregate, left: Left) -> pa.Array:
        try:
            if name in self._lowered:
                return self._lowered[name].of(left)
            if isinstance(aggregate, Fold):
                return self._folded(name, aggregate, left)
            assert left.members is not None, "aggregates that are not lowered have rows"
            assert aggregate.value is not None, "aggregates of rows are lowered"
            from penstock.stages.row_aggregates import from_rows, segments

            found = segments(left.members, self._lifting.column_name(aggregate.value))
            return from_rows(aggregate, found, aggregate.type(self._up))
        except PartFailed as cause:
            raise cause.error(self._place(left, cause.place)).at(self._site.step, self._site.where) from cause
        except DoesNotFit as cause:
            raise EngineError(
                f"{aggregate} of {self._place(left, cause.place)} does not fit its type",
                step=self._site.step,
                where=self._site.where,
                detail=cause.reason,
                hint='cast the value first, e.g. .cast("float64"), or use a shorter window',
            ) from cause

    def _folded(self, name: str, fold: Fold, left: Left) -> pa.Array:
        calls = self._lifting.folds[name]
        results = []
        parts = self._parts(name, left)
        assert left.members is not None, "folds in Python have rows"
        offsets, places = left.members.offsets.tolist(), left.members.places
        for place, (start, end) in enumerate(pairwise(offsets)):
            mine = parts[places[start:end]].tolist()
            results.append(calls.result(mine, partial(self._place, left, place)))
        return from_plain(results, fold.type(self._up))

    def _parts(self, name: str, left: Left) -> Objects:
        """What lift gave for each kept row; those from a snapshot are lifted now."""
        assert left.members is not None, "folds in Python have rows"
        lifted, rows = left.members.lifted, left.members.rows
        parts = lifted[self._lifting.in_python.index(name)] if lifted else np.full(rows.num_rows, UNLIFTED)
        unknown = np.flatnonzero([part is UNLIFTED for part in parts])
        if len(unknown):
            parts = parts.copy()
            plain = plain_rows_of(rows.select(self._up.schema.names).take(pa.array(unknown)))
            for place, values in zip(unknown.tolist(), plain, strict=True):
                parts[place] = self._lifting.folds[name].lift(values)
        return parts

    def _applied(self, left: Left, calls: ApplyCalls) -> Made:
        given = []
        for place, rows in enumerate(_members(left, self._up)):
            this = self._this(left, place)
            given.append(calls.rows(rows, this, partial(self._place, left, place)))
        flat = [row for rows in given for row in rows]
        columns = [from_plain([row[field.name] for row in flat], field.type) for field in calls.schema]
        return Made(columns, np.array([len(rows) for rows in given], np.int64))

    def _this(self, left: Left, place: int) -> ThisWindow:
        """The window as the user sees it."""
        bounds = times_of(np.array([left.starts[place], left.ends[place]]), self._time)
        start, end = (_shown(value, self._time.type) for value in to_plain(bounds))
        key = self._key_of(int(left.slots[place]))
        index = None if left.index is None else int(left.index[place])
        return ThisWindow(start, end, index, self._resolved.windows[int(left.kinds[place])][0], key)

    def _key_of(self, slot: int) -> tuple[object, ...]:
        columns = self._keys.columns_of(np.array([slot], np.int64))
        return tuple(_shown(to_plain(column)[0], column.type) for column in columns)

    def _place(self, left: Left, place: int) -> str:
        """A window for an error message: which kind, its bounds, its key."""
        window = self._resolved.windows[int(left.kinds[place])][1]
        bounds = int(left.starts[place]), int(left.ends[place])
        return self.place_of(Whose(int(left.slots[place]), window, *bounds))

    def place_of(self, whose: Whose) -> str:
        """A window for an error message: which kind, its bounds, its key."""
        bounds = times_of(np.array([whose.start, whose.end]), self._time)
        start, end = (_shown(value, self._time.type) for value in to_plain(bounds))
        key = self._key_of(whose.slot)
        named = ", ".join(f"{name}={value!r}" for name, value in zip(self._up.key, key, strict=True))
        return f"window {whose.window} from {start} to {end}" + (f" of key {named}" if named else "")


class _named:
    """Fills the step's name into errors of users' functions, and of times that their column cannot hold."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, FunctionError | TimeError):
            error.at(self._site.step, self._site.where)


def _members(left: Left, up: Stream) -> list[list[dict[str, object]]]:
    """The input's rows of each window, as plain values; each kept row is made plain once."""
    assert left.members is not None, "functions of windows have rows"
    kept = plain_rows_of(left.members.rows.select(up.schema.names))
    bounds = left.members.offsets.tolist()
    places = left.members.places.tolist()
    return [[kept[place] for place in places[start:end]] for start, end in pairwise(bounds)]


def _one_after_another(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(list(parts))


def _shown(value: object, type_: pa.DataType) -> object:
    """A value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
