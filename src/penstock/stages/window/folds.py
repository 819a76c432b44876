"""A user's combine that failed, on its way out of a store: each room adds what it knows of the window.

Loops know the row or the window by its place in a call, stores the slot and the bounds, the stage the key and
the step. No row can be blamed, because combine sees parts of any number of rows: the run fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.caller import find_definition, name_of
from penstock.errors import FunctionError, describe_cause
from penstock.expr.arrow.columnar_value import numbers_of
from penstock.expr.types import from_plain
from penstock.frozen import dataclass
from penstock.kernels.compile.user_functions import FunctionSource
from penstock.kernels.windows.accumulate import RULES, Rule
from penstock.kernels.windows.folds import (
    FoldFunctions,
    build_fold_rule,
    build_lift_loop,
    build_lower_loop,
    build_probe_loop,
)
from penstock.operators.aggregates import Fold
from penstock.operators.choices.folds import is_pure, may_raise
from penstock.operators.stream import Stream
from penstock.stages import policy
from penstock.stages.functions.rows import plain_rows_of
from penstock.stages.functions.windows import SKIPPED, FoldCaller, WindowFunctionFailure
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.stage import PlainRow, Site
from penstock.stages.window.store import Values
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

Window = TimeWindow | SessionWindow | CountWindow


@dataclass(frozen=True, slots=True)
class WindowRef:
    """One window of one slot, bounds in microseconds."""

    slot: int
    window: Window
    start: int
    end: int


class CombineFailure(Exception):
    """Combine failed; `place` counts in what the loop was given, rows or windows, if that is known."""

    def __init__(self, rule: Rule, cause: Exception, place: int | None) -> None:
        super().__init__(describe_cause(cause))
        self.rule, self.cause, self.place = rule, cause, place
        self.slot: int | None = None
        self.time: int | None = None
        self.whose: WindowRef | None = None


@contextmanager
def catch_combine(rule: Rule, at: Ints | None = None) -> Iterator[None]:
    """Catch what a loop raises under a user's rule; at[0] is the place where it was."""
    try:
        yield
    except (CombineFailure, AssertionError):
        raise
    except Exception as cause:
        if rule in RULES:
            raise
        raise CombineFailure(rule, cause, None if at is None else int(at[0])) from cause


@contextmanager
def locate_row(slots: Ints | None, times: Ints) -> Iterator[None]:
    """Add the slot and the time of the row; without slots all are of slot 0."""
    try:
        yield
    except CombineFailure as failed:
        if failed.place is not None and failed.time is None:
            failed.slot = 0 if slots is None else int(slots[failed.place])
            failed.time = int(times[failed.place])
        raise


# The parts of a fold's rows: lifted already, or the columns to lift them from while they are combined.
#
# Where lift is compiled, no array of parts is ever made for windows of time: one loop reads the columns,
# lifts a row and combines it into its cell. Stores that must keep what a row gave ask for `data`, which
# lifts.

Floats = npt.NDArray[np.float64]


class FoldColumns(Values):
    """The columns of a fold whose lift is compiled and fails on none of these rows.

    Rows that are not valid have the values of one that is, so that lift does not fail on them either.
    """

    __slots__ = ("columns", "of")
    of: FoldFunctions
    columns: tuple[Floats, ...]

    def __init__(self, of: FoldFunctions, columns: tuple[Floats, ...], valid: Mask | None) -> None:
        for name, value in (("of", of), ("columns", columns), ("valid", valid)):
            object.__setattr__(self, name, value)

    @property
    def data(self) -> Floats:
        """The parts, lifted now: float64[n, width]."""
        parts = np.empty((len(self.columns[0]), self.of.width))
        build_lift_loop(self.of).version(True)(*self.columns, parts)
        return parts

    def at(self, places: npt.NDArray[Any]) -> FoldColumns:
        """The rows at some places."""
        valid = None if self.valid is None else self.valid[places]
        return FoldColumns(self.of, tuple(column[places] for column in self.columns), valid)

    def lifted(self) -> Values:
        """The same with its parts made, to be kept."""
        return Values(self.data, self.valid)


def materialize_values(values: tuple[Values, ...]) -> tuple[Values, ...]:
    """Values that can be kept: parts are lifted."""
    return tuple(each.lifted() if isinstance(each, FoldColumns) else each for each in values)


# Folds by registers: parts of floats kept in cells, lifted and combined by loops that Numba compiles.
#
# A fold whose parts are floats over number columns goes this way; any other runs in Python over kept rows.
# Rows are lifted in Python while they are few, where a whole number is beyond what a float holds exactly,
# and where the compiled lift raised, so that only the rows that fail are lost.

EXACT = 2**53
"""Whole numbers up to this are floats without loss."""


@dataclass(frozen=True, slots=True)
class FoldInputs:
    """The parts of a batch's rows, lifted or not, and the rows that failed; None if none did."""

    values: Values
    failed: Mask | None


class AccumulatorFold:
    """One fold by registers."""

    def __init__(self, fold: Fold, up: Stream, calls: FoldCaller) -> None:
        self.fold, self._calls, self._type = fold, calls, fold.type(up)
        self._alone = not isinstance(fold.zero, tuple)
        self.zero: tuple[float, ...] = (fold.zero,) if self._alone else fold.zero
        self._columns = tuple(fold.columns or ())
        combine = FunctionSource(fold.combine, strict=may_raise(fold.combine))
        width = len(self.zero)
        self.rule = build_fold_rule(name_of(fold.combine), combine, self.zero, alone=self._alone)
        self._functions = FoldFunctions(FunctionSource(fold.lift), combine, self._columns, width, self._alone)
        self._probe = build_probe_loop(self._functions, strict=may_raise(fold.lift))
        plain = fold.lower is not None and is_pure(fold.lower) and kind.is_float64(self._type)
        self._lower = (
            build_lower_loop(FunctionSource(fold.lower), width, alone=self._alone)
            if plain and fold.lower
            else None
        )
        self._work = 0

    def explain(self) -> str:
        """Whether the fold is compiled; this tries it."""
        if self._probe.compiles:
            return f"{self.fold} is compiled by Numba"
        name, refused = name_of(self.fold.lift), self._probe.refusal
        return f"{self.fold}: {name} runs in Python, because Numba says: {refused}"

    def parts(self, rows: pa.RecordBatch) -> FoldInputs:
        """Lift every row that has no null in the fold's columns, or find that it can be lifted later."""
        chosen = rows.select(list(self._columns))
        valid = _valid_rows(chosen)
        self._work += rows.num_rows
        columns = self._liftable(chosen, valid) if self._work > policy.SIZES.compile_after else None
        if columns is not None:
            return FoldInputs(FoldColumns(self._functions, columns, valid), None)
        lifted, failed = self._one_by_one(rows, valid)
        return FoldInputs(Values(lifted, valid), failed)

    def _liftable(self, chosen: pa.RecordBatch, valid: Mask | None) -> tuple[Floats, ...] | None:
        """The columns for the compiled lift, which fails on none of the rows; None where it might."""
        columns = [numbers_of(column) for column in chosen.columns]
        whole = [column for column in columns if column.dtype.kind in "iu" and len(column)]
        if any(column.max() > EXACT or column.min() < -EXACT for column in whole):
            return None
        if valid is not None:
            if not valid.any():
                return None
            columns = [np.where(valid, column, column[np.argmax(valid)]) for column in columns]
        floats = tuple(np.ascontiguousarray(column, np.float64) for column in columns)
        if not self._probe.compiles:
            return None
        try:
            self._probe.compiled(*floats)
        except Exception:  # some row failed: Python finds out which
            return None
        return floats

    def _one_by_one(self, rows: pa.RecordBatch, valid: Mask | None) -> tuple[Floats, Mask | None]:
        lifted = np.zeros((rows.num_rows, len(self.zero)))
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            if valid is None or valid[place]:
                try:
                    lifted[place] = self.lift(values)
                except Exception:
                    failed[place] = True
        return lifted, failed if failed.any() else None

    def lift(self, values: PlainRow) -> object:
        """The part of one row; raises where lift does, and where what it gives is no part."""
        part: Any = self._calls.lift(values)
        if part is SKIPPED:
            return part
        return float(part) if self._alone else tuple(map(float, part))

    def _lowered(self, cells: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """All results at once; None where only Python will do."""
        assert self._lower is not None, "asked where there is a loop"
        if not self._lower.compiles:
            return None
        results = np.empty(len(cells))
        try:
            self._lower.compiled(np.ascontiguousarray(cells), results)
        except Exception:  # it failed on some window: Python finds out which
            return None
        assert self.fold.lower is not None, "the loop is of it"
        return None if may_raise(self.fold.lower) and not np.isfinite(results).all() else results

    def column(self, cells: npt.NDArray[np.float64]) -> pa.Array:
        """The results of windows, from their cells."""
        if self.fold.lower is None:
            return pa.array(cells[:, 0], self._type, from_pandas=False)
        fast = (
            self._lowered(cells)
            if self._lower is not None and self._work > policy.SIZES.compile_after
            else None
        )
        if fast is not None:
            return pa.array(fast, self._type, from_pandas=False)
        parts = cells[:, 0].tolist() if self._alone else list(map(tuple, cells.tolist()))
        results = []
        for place, part in enumerate(parts):
            try:
                results.append(self._calls.lower(part))
            except Exception as cause:
                raise WindowFunctionFailure(place, self.fold.lower, cause) from cause
        return from_plain(results, self._type)


@contextmanager
def report_combine_failure(
    foldings: Sequence[AccumulatorFold], site: Site, place: Callable[[WindowRef], str]
) -> Iterator[None]:
    """Name the function, the step and the window where stores could not combine parts."""
    try:
        yield
    except CombineFailure as failed:
        combine = next(each.fold.combine for each in foldings if each.rule is failed.rule)
        on = "parts of windows" if failed.whose is None else place(failed.whose)
        raise FunctionError(
            f"function {name_of(combine)} failed on {on}",
            step=site.step,
            where=find_definition(combine),
            detail=str(failed),
            hint="combine must take any two parts, and zero with any part",
        ) from failed.cause


def _valid_rows(rows: pa.RecordBatch) -> Mask | None:
    """Which rows have no null; None when all."""
    masks = [c.is_valid().to_numpy(zero_copy_only=False) for c in rows.columns if c.null_count]
    return np.asarray(np.logical_and.reduce(masks)) if masks else None
