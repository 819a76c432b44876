"""What steps without state have in common: rows go through at once, keep their time, and nothing is saved.

Such a stage gives back whatever a batch becomes, whichever watermark judges it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from penstock.frozen import dataclass
from penstock.operators.function import RowFunction
from penstock.operators.op import ERRORS
from penstock.operators.stream import Stream
from penstock.stages.functions.calls import function_error
from penstock.stages.functions.errors import RowErrors
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site

Outputs = Iterator[tuple[str, Batch]]


class StatelessStage(ABC):
    """One replica of a step that handles each batch by itself."""

    def __init__(self, up: Stream, site: Site) -> None:
        self.up, self.site = up, site

    def at_once(self, batch: Batch) -> Batch | None:
        """All that some rows become, where that goes out on the main port, and the others are filtered.

        None where it is not as simple as that: then nothing has been done, and `made` is to be asked. Rows
        are counted by who asks.
        """
        return None

    def by_row(self) -> RowStep | None:
        """What is made of a single plain row, where the stage has a shorter way for it."""
        return None

    @abstractmethod
    def made(self, batch: Batch) -> Outputs:
        """What some rows become, by port; counts them. Batches without rows may be among it."""

    @abstractmethod
    def explain(self) -> list[str]:
        """How the step is carried out, and why."""

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """The rows of a batch, at once."""
        self.site.accounts.rows_in += batch.num_rows
        if batch.num_rows == 0:
            return
        for port, rows in self.made(batch):
            if rows.num_rows:
                if port != ERRORS:
                    self.site.accounts.rows_out += rows.num_rows
                yield port, rows

    def on_watermark(self, watermark: float) -> Outputs:
        """Nothing waits."""
        return iter(())

    def drain(self) -> Outputs:
        """Nothing waits."""
        return iter(())

    def snapshot(self) -> dict[int, bytes]:
        """Nothing is kept."""
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Nothing to take up."""
        assert not saved, f"the stateless step {self.site.step} was given {len(saved)} buckets of state"


# Rows one at a time: what a stage makes of a single plain row, with no batch around it.
#
# A row at a time costs what its functions cost, if nothing is made for it but the rows themselves. So a stage
# may offer a function from row to row; engines put several of them one behind the other. What such a function
# does to a row is what the stage does to a batch of that one row; rows are counted by who calls it.

PlainRow = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RowStep:
    """What a stage does to a row.

    step  what the row becomes, None if it is filtered; raises what the user's function raises
    lost  what becomes of a batch of the one row on which it raised: stops the run, or gives what goes to
          `.errors`, if anything does; counts it as an error
    """

    step: Callable[[PlainRow], PlainRow | None]
    lost: Callable[[Batch, Exception], Batch | None]


def function_step(
    step: Callable[[PlainRow], PlainRow | None], function: RowFunction, errors: RowErrors
) -> RowStep:
    """A step that calls a user's function."""
    return RowStep(step, partial(_on_function_failure, function, errors))


def expression_step(step: Callable[[PlainRow], PlainRow | None], errors: RowErrors) -> RowStep:
    """A step that computes expressions, whose stage can tell what failed by looking at the row again."""
    return RowStep(step, lambda row, cause: errors.take(row, np.ones(1, np.bool_)))


def _on_function_failure(
    function: RowFunction, errors: RowErrors, row: Batch, cause: Exception
) -> Batch | None:
    return errors.take(row, np.ones(1, np.bool_), [function_error(function, cause)])
