"""Rows one at a time: what a stage makes of a single plain row, with no batch around it.

A row at a time costs what its functions cost, if nothing is made for it but the rows themselves. So a stage
may offer a function from row to row; engines put several of them one behind the other. What such a function
does to a row is what the stage does to a batch of that one row; rows are counted by who calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from penstock.frozen import dataclass
from penstock.operators.function import RowFunction
from penstock.stages.batch import Batch
from penstock.stages.row_errors import RowErrors
from penstock.stages.row_work import blame

Plain = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ByRow:
    """What a stage does to a row.

    step  what the row becomes, None if it is filtered; raises what the user's function raises
    lost  what becomes of a batch of the one row on which it raised: stops the run, or gives what goes to
          `.errors`, if anything does; counts it as an error
    """

    step: Callable[[Plain], Plain | None]
    lost: Callable[[Batch, Exception], Batch | None]


def by_row(step: Callable[[Plain], Plain | None], function: RowFunction, errors: RowErrors) -> ByRow:
    """A step that calls a user's function."""
    return ByRow(step, partial(_lost, function, errors))


def computed_by_row(step: Callable[[Plain], Plain | None], errors: RowErrors) -> ByRow:
    """A step that computes expressions, whose stage can tell what failed by looking at the row again."""
    return ByRow(step, lambda row, cause: errors.take(row, np.ones(1, np.bool_)))


def _lost(function: RowFunction, errors: RowErrors, row: Batch, cause: Exception) -> Batch | None:
    return errors.take(row, np.ones(1, np.bool_), [blame(function, cause)])
