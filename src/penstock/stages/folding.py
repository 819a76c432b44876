"""Folds by registers: parts of floats kept in cells, lifted and combined by loops that Numba compiles.

A fold whose parts are floats over number columns goes this way; any other runs in Python over kept rows. Rows
are lifted in Python while they are few, where a whole number is beyond what a float holds exactly, and where
the compiled lift raised, so that only the rows that fail are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.caller import defined_at, name_of
from penstock.errors import FunctionError, PenstockError
from penstock.expr.arrow.evaluated import numbers
from penstock.expr.failure import reason_of
from penstock.expr.types import from_plain
from penstock.kernels.folds import fold_rule, lift_loop, lower_loop
from penstock.operators.aggregates import Fold
from penstock.operators.stream import Stream
from penstock.stages.batch import Mask
from penstock.stages.pace import SMALL
from penstock.stages.site import Site
from penstock.stages.store import Values
from penstock.stages.user_calls import FoldCalls, PartFailed, plain_rows_of

EXACT = 2**53
"""Whole numbers up to this are floats without loss."""


def why_python(fold: Fold, up: Stream) -> str | None:
    """Why a fold runs in Python over kept rows; None when it goes by registers."""
    parts = fold.zero if isinstance(fold.zero, tuple) else (fold.zero,)
    if not fold.commutative:
        return "the order of rows matters"
    if not parts or not all(type(part) is float for part in parts):
        return "its zero is not of floats; with 0.0 in it, it could be compiled"
    if not fold.columns:
        return "it does not say which columns it reads; with columns=... it could be compiled"
    wrong = [name for name in fold.columns if not _is_number(up.schema.field(name).type)]
    if wrong or not all(name.isidentifier() and not name.startswith("_") for name in fold.columns):
        return f"column {(wrong or list(fold.columns))[0]} is not of numbers"
    if not all(_is_plain(call) for call in (fold.lift, fold.combine)):
        return "lift or combine has a state of its own"
    if fold.lower is None and (isinstance(fold.zero, tuple) or not kind.is_float64(fold.type(up))):
        return "its parts are not results"
    return None


def _is_number(type_: pa.DataType) -> bool:
    return bool(kind.is_integer(type_) or kind.is_floating(type_))


def _is_plain(call: Callable[..., Any]) -> bool:
    """Whether a function is nothing but its code."""
    return isinstance(call, FunctionType) and not (
        call.__closure__ or call.__defaults__ or call.__kwdefaults__
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a batch's rows: one lot of floats per number in a part, and the rows that failed."""

    values: tuple[Values, ...]
    failed: Mask | None


class Folding:
    """One fold by registers."""

    def __init__(self, fold: Fold, up: Stream, calls: FoldCalls) -> None:
        self.fold, self._calls, self._type = fold, calls, fold.type(up)
        self._alone = not isinstance(fold.zero, tuple)
        self.zero: tuple[float, ...] = (fold.zero,) if self._alone else fold.zero
        self._columns = tuple(fold.columns or ())
        self.rule = fold_rule(name_of(fold.combine), fold.combine, self.zero, alone=self._alone)
        self._lift = lift_loop(fold.lift, self._columns, len(self.zero), alone=self._alone)
        plain = fold.lower is not None and _is_plain(fold.lower) and kind.is_float64(self._type)
        self._lower = (
            lower_loop(fold.lower, len(self.zero), alone=self._alone) if plain and fold.lower else None
        )
        self._work = 0

    def explain(self) -> str:
        """Whether the fold is compiled; this tries it."""
        self._lift.at(True)
        refused = self._lift.refusal
        name = name_of(self.fold.lift)
        return (
            f"{self.fold} is compiled by Numba"
            if refused is None
            else f"{self.fold}: {name} runs in Python, because Numba says: {refused}"
        )

    def parts(self, rows: pa.RecordBatch) -> Parts:
        """Lift every row that has no null in the fold's columns."""
        chosen = rows.select(list(self._columns))
        valid = _valid(chosen)
        self._work += rows.num_rows
        lifted = self._compiled(chosen) if self._work > SMALL else None
        failed = None
        if lifted is None:
            lifted, failed = self._one_by_one(rows, valid)
        return Parts(tuple(Values(part, valid) for part in lifted), failed)

    def _compiled(self, chosen: pa.RecordBatch) -> npt.NDArray[np.float64] | None:
        """All parts at once; None where only Python will do."""
        columns = [numbers(column) for column in chosen.columns]
        whole = [column for column in columns if column.dtype.kind == "i" and len(column)]
        if any(column.max() > EXACT or column.min() < -EXACT for column in whole):
            return None
        lifted = np.empty((len(self.zero), chosen.num_rows))
        run = self._lift.at(True)
        if self._lift.refusal is not None:
            return None
        try:
            run(np.stack(columns).astype(np.float64, copy=False), lifted)
        except Exception:  # some row failed: Python finds out which
            return None
        return lifted

    def _one_by_one(
        self, rows: pa.RecordBatch, valid: Mask | None
    ) -> tuple[npt.NDArray[np.float64], Mask | None]:
        lifted = np.zeros((len(self.zero), rows.num_rows))
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            if valid is None or valid[place]:
                try:
                    lifted[:, place] = self._calls.lift(values)
                except Exception:
                    failed[place] = True
        return lifted, failed if failed.any() else None

    def _lowered(self, cells: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """All results at once; None where only Python will do."""
        assert self._lower is not None, "asked where there is a loop"
        run, results = self._lower.at(True), np.empty(len(cells))
        if self._lower.refusal is not None:
            return None
        try:
            run(np.ascontiguousarray(cells), results)
        except Exception:  # it failed on some window: Python finds out which
            return None
        return results

    def column(self, cells: npt.NDArray[np.float64]) -> pa.Array:
        """The results of windows, from their cells."""
        if self.fold.lower is None:
            return pa.array(cells[:, 0], self._type, from_pandas=False)
        fast = self._lowered(cells) if self._lower is not None and self._work > SMALL else None
        if fast is not None:
            return pa.array(fast, self._type, from_pandas=False)
        parts = cells[:, 0].tolist() if self._alone else list(map(tuple, cells.tolist()))
        results = []
        for place, part in enumerate(parts):
            try:
                results.append(self._calls.lowered(part))
            except Exception as cause:
                raise PartFailed(place, self.fold.lower, cause) from cause
        return from_plain(results, self._type)


@contextmanager
def combining(foldings: Sequence[Folding], site: Site) -> Iterator[None]:
    """Name the functions that may have failed while stores combined parts; stores cannot say where."""
    try:
        yield
    except (PenstockError, AssertionError):
        raise
    except Exception as cause:
        if not foldings:
            raise
        names = " or ".join(dict.fromkeys(name_of(folding.fold.combine) for folding in foldings))
        raise FunctionError(
            f"function {names} failed while parts of windows were combined",
            step=site.step,
            where=defined_at(foldings[0].fold.combine),
            detail=reason_of(cause),
            hint="combine must take any two parts, and zero with any part",
        ) from cause


def _valid(rows: pa.RecordBatch) -> Mask | None:
    """Which rows have no null; None when all."""
    masks = [c.is_valid().to_numpy(zero_copy_only=False) for c in rows.columns if c.null_count]
    return np.asarray(np.logical_and.reduce(masks)) if masks else None
