"""Users' folds in accumulators: parts of floats kept in cells, lifted and combined by compiled loops.

A fold whose parts are floats over number columns is held by an accumulator; any other runs in Python over
kept rows. Rows are lifted in Python while they are few, where a whole number is beyond what a float holds
exactly, and where the compiled lift raised, so that only the rows that fail are lost. Where lift is
compiled, no array of parts is built for the time windows of one slot: one loop reads the columns, lifts a row
and combines it into its cell.

A `combine` that fails stops the run, because it sees parts of any number of rows and no row is to blame. On
its way out of a store every layer adds what it knows: the loop the place of the row or window in its call,
the store the slot and the bounds, the stage the key and the step.
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
from penstock.expr.values import from_plain, numbers_of
from penstock.frozen import Frozen
from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows.accumulate import RULES, Rule
from penstock.kernels.windows.folds import (
    FoldFunctions,
    build_fold_rule,
    build_lift_loop,
    build_lower_loop,
    build_probe_loop,
)
from penstock.operators.aggregates import Fold
from penstock.operators.choices import is_pure, may_raise
from penstock.operators.op import Stream
from penstock.stages import policy
from penstock.stages.functions.calls import SKIPPED, FoldCaller, WindowFunctionFailure, plain_rows_of
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import Values
from penstock.stages.stage import PlainRow, StageContext
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

Floats = npt.NDArray[np.float64]
Window = TimeWindow | SessionWindow | CountWindow

EXACT = 2**53
"""Whole numbers up to this are floats without loss."""


class AccumulatorFold:
    """One fold that an accumulator holds."""

    def __init__(self, fold: Fold, up: Stream, caller: FoldCaller) -> None:
        self.fold, self._caller, self._type = fold, caller, fold.type(up)
        self._alone = not isinstance(fold.zero, tuple)
        self.zero: tuple[float, ...] = (fold.zero,) if self._alone else fold.zero
        self._columns = tuple(fold.columns or ())
        combine = FunctionSource(fold.combine, strict=may_raise(fold.combine))
        width = len(self.zero)
        self.rule = build_fold_rule(name_of(fold.combine), combine, self.zero, alone=self._alone)
        self._functions = FoldFunctions(FunctionSource(fold.lift), combine, self._columns, width, self._alone)
        self._probe = build_probe_loop(self._functions, strict=may_raise(fold.lift))
        self._lower = None
        if fold.lower is not None and is_pure(fold.lower) and kind.is_float64(self._type):
            self._lower = build_lower_loop(FunctionSource(fold.lower), width, alone=self._alone)
        self._n_rows = 0

    def explain(self) -> str:
        """Say whether the fold is compiled; this tries it."""
        if self._probe.compiles:
            return f"{self.fold} is compiled by Numba"
        name, refusal = name_of(self.fold.lift), self._probe.refusal
        return f"{self.fold}: {name} runs in Python, because Numba says: {refusal}"

    def inputs(self, rows: pa.RecordBatch) -> tuple[Values, Mask | None]:
        """Lift every row that has no null in the fold's columns, or find that it can be lifted later.

        Returns the parts, lifted or not, and the rows that failed; None if none did.
        """
        columns = rows.select(list(self._columns))
        valid = _valid_rows(columns)
        self._n_rows += rows.num_rows
        floats = self._compilable(columns, valid) if self._is_large else None
        if floats is not None:
            return FoldColumns(self._functions, floats, valid), None
        parts, failed = self._lift_in_python(rows, valid)
        return Values(parts, valid), failed

    @property
    def _is_large(self) -> bool:
        return self._n_rows > policy.SIZES.compile_after

    def _compilable(self, rows: pa.RecordBatch, valid: Mask | None) -> tuple[Floats, ...] | None:
        """Return the columns for the compiled lift if it fails on none of the rows, else None."""
        columns = [numbers_of(column) for column in rows.columns]
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

    def _lift_in_python(self, rows: pa.RecordBatch, valid: Mask | None) -> tuple[Floats, Mask | None]:
        parts = np.zeros((rows.num_rows, len(self.zero)))
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            if valid is None or valid[place]:
                try:
                    parts[place] = self.lift(values)
                except Exception:
                    failed[place] = True
        return parts, failed if failed.any() else None

    def lift(self, values: PlainRow) -> object:
        """Return the part of one row; raise where lift does, and where it returns no part."""
        part: Any = self._caller.lift(values)
        if part is SKIPPED:
            return part
        return float(part) if self._alone else tuple(map(float, part))

    def column(self, cells: Floats) -> pa.Array:
        """Build the results of windows from their cells."""
        if self.fold.lower is None:
            return pa.array(cells[:, 0], self._type, from_pandas=False)
        results = self._lower_compiled(cells) if self._is_large else None
        if results is not None:
            return pa.array(results, self._type, from_pandas=False)
        parts = cells[:, 0].tolist() if self._alone else list(map(tuple, cells.tolist()))
        lowered = []
        for place, part in enumerate(parts):
            try:
                lowered.append(self._caller.lower(part))
            except Exception as cause:
                raise WindowFunctionFailure(place, self.fold.lower, cause) from cause
        return from_plain(lowered, self._type)

    def _lower_compiled(self, cells: Floats) -> Floats | None:
        """Compute all results at once; None where only Python will do."""
        if self._lower is None or not self._lower.compiles:
            return None
        results = np.empty(len(cells))
        try:
            self._lower.compiled(np.ascontiguousarray(cells), results)
        except Exception:  # it failed on some window: Python finds out which
            return None
        assert self.fold.lower is not None, "the loop is of it"
        # Why: where Python would raise, machine code returns NaN or an infinity.
        return None if may_raise(self.fold.lower) and not np.isfinite(results).all() else results


def _valid_rows(rows: pa.RecordBatch) -> Mask | None:
    """Return which rows have no null; None when all."""
    masks = [c.is_valid().to_numpy(zero_copy_only=False) for c in rows.columns if c.null_count]
    return np.asarray(np.logical_and.reduce(masks)) if masks else None


class FoldColumns(Values):
    """The columns of a fold whose lift is compiled and fails on none of these rows.

    Rows that are not valid have the values of one that is, so that lift does not fail on them either. Stores
    that must keep what a row contributes ask for `data`, which lifts.
    """

    __slots__ = ("columns", "of")
    of: FoldFunctions
    columns: tuple[Floats, ...]

    def __init__(self, of: FoldFunctions, columns: tuple[Floats, ...], valid: Mask | None) -> None:
        for name, value in (("of", of), ("columns", columns), ("valid", valid)):
            object.__setattr__(self, name, value)

    @property
    def data(self) -> Floats:
        """Return the parts, lifted now: float64[n, width]."""
        parts = np.empty((len(self.columns[0]), self.of.width))
        build_lift_loop(self.of).version(True)(*self.columns, parts)
        return parts

    def at(self, places: npt.NDArray[Any] | slice) -> FoldColumns:
        """Return the rows at some places."""
        valid = None if self.valid is None else self.valid[places]
        return FoldColumns(self.of, tuple(column[places] for column in self.columns), valid)


def lift_values(values: tuple[Values, ...]) -> tuple[Values, ...]:
    """Return values that can be kept: the parts of folds are lifted."""
    return tuple(Values(v.data, v.valid) if isinstance(v, FoldColumns) else v for v in values)


class WindowRef(Frozen):
    """One window of one slot, bounds in microseconds."""

    slot: int
    window: Window
    start: int
    end: int


class CombineFailure(Exception):
    """A user's combine failed.

    place       in what the loop was given, rows or windows, if it is known
    slot, time  of the row, if the loop was given rows
    window_ref  the window, as soon as a store knows it
    """

    def __init__(self, rule: Rule, cause: Exception, place: int | None) -> None:
        super().__init__(describe_cause(cause))
        self.rule, self.cause, self.place = rule, cause, place
        self.slot: int | None = None
        self.time: int | None = None
        self.window_ref: WindowRef | None = None

    def locate(self, slots: Ints, times: Ints) -> None:
        """Add the slot and the time of the row, if they are not known."""
        if self.place is not None and self.time is None:
            self.slot, self.time = int(slots[self.place]), int(times[self.place])


@contextmanager
def catch_combine(rule: Rule, at: Ints | None = None) -> Iterator[None]:
    """Raise CombineFailure for what a loop raises under a user's rule; at[0] is the place where it was."""
    try:
        yield
    except (CombineFailure, AssertionError):
        raise
    except Exception as cause:
        if rule in RULES:
            raise
        raise CombineFailure(rule, cause, None if at is None else int(at[0])) from cause


def describe_failure(
    failure: CombineFailure,
    folds: Sequence[AccumulatorFold],
    site: StageContext,
    describe: Callable[[WindowRef], str],
) -> FunctionError:
    """Return the error that names the function, the step and the window where parts were not combined."""
    combine = next(fold.fold.combine for fold in folds if fold.rule is failure.rule)
    on = "parts of windows" if failure.window_ref is None else describe(failure.window_ref)
    return FunctionError(
        f"function {name_of(combine)} failed on {on}",
        step=site.step,
        where=find_definition(combine),
        detail=str(failure),
        hint="combine must take any two parts, and zero with any part",
    )
