"""The protocols of a stage: an operator's work as a small state machine, the same for every engine.

Batch or watermark in, batches out; no threads and no I/O. Engines own both: they carry batches to stages and
keep the snapshots that stages take of themselves. A stage without state is a `StatelessStage`; one that can
also process single plain rows is a `RowStage`, which engines/local/row_path.py makes use of.

`RowErrors` is what all of them do with rows that failed, as the step's `on_error` says: stop, count, or
`.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.errors import FunctionError, PenstockError, Where
from penstock.expr.values import to_plain
from penstock.frozen import Frozen
from penstock.operators.function import Row
from penstock.operators.op import ERRORS, NO_HISTORY, OnError, StepHistory, Stream, error_schema
from penstock.stages.rows.batch import Batch, Mask

Outputs = Iterator[tuple[str, Batch]]
"""Rows that leave a stage, each batch with its output port."""
SavedBytes = bytes | memoryview
"""Saved state: a view where it is read from a file, so that a large one is not copied."""
PlainRow = Mapping[str, object]
"""A row as plain Python values by column, with no batch around it."""


class StageContext(Frozen):
    """The step that a stage works for, and what the stage reports to.

    step      the step's name, for errors and for saved state
    where     the user's line that wrote it
    accounts  counted up as rows go by; one stage, one writer
    clock     for early results, and for the times of a source
    read      the output ports that somebody reads; None when all are read
    reasons   takes one reason why rows failed, for the event that reports them; None if nobody listens
    history   what the step was in earlier runs of its checkpoint
    """

    step: str
    where: Where | None
    accounts: Accounts
    clock: Clock
    read: frozenset[str] | None = None
    reasons: list[str] | None = None
    history: StepHistory = NO_HISTORY

    def is_read(self, port: str) -> bool:
        """Return whether rows on this output port go anywhere."""
        return self.read is None or port in self.read


class Stage(Protocol):
    """One replica of one operator."""

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Take rows in; those behind the watermark are late."""

    def on_watermark(self, watermark: float) -> Outputs:
        """Emit what the watermark has passed."""

    def drain(self) -> Outputs:
        """Emit everything that is left, because the stream has ended."""

    def snapshot(self) -> Mapping[int, bytes]:
        """Return the state per bucket, only what changed since the last snapshot; no pickle."""

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Go back to a snapshot, also to one taken by another number of replicas."""


class StatelessStage(ABC):
    """One replica of a step that processes each batch by itself, whatever the watermark; nothing is saved."""

    def __init__(self, up: Stream, site: StageContext) -> None:
        self.up, self.site = up, site

    @abstractmethod
    def process(self, batch: Batch) -> Outputs:
        """Emit what the rows become and counts them; batches without rows may be among the outputs."""

    @abstractmethod
    def explain(self) -> list[str]:
        """Return how the step is carried out, and why, for `explain()`."""

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Process the batch at once."""
        accounts = self.site.accounts
        accounts.rows_in += batch.num_rows
        if batch.num_rows == 0:
            return
        for port, rows in self.process(batch):
            if rows.num_rows:
                if port != ERRORS:
                    accounts.rows_out += rows.num_rows
                yield port, rows

    def on_watermark(self, watermark: float) -> Outputs:
        """Emit nothing: no row waits."""
        return iter(())

    def drain(self) -> Outputs:
        """Emit nothing: no row waits."""
        return iter(())

    def snapshot(self) -> dict[int, bytes]:
        """Return nothing."""
        return {}

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Accept only an empty snapshot."""
        assert not saved, f"the stateless step {self.site.step} was given {len(saved)} buckets of state"


class RowStep(Frozen):
    """A stage's work on one plain row, the same as on a batch of that one row.

    process    returns the row that leaves, or None if the row is filtered; raises what the user's function
               raises; the caller counts the row
    on_failure handles a batch of the one row on which `process` raised: stops the run, or counts an error
               and returns what goes to `.errors`, if anything does
    """

    process: Callable[[PlainRow], PlainRow | None]
    on_failure: Callable[[Batch, Exception], Batch | None]


class RowStage(ABC):
    """A stage that can process single plain rows, besides batches.

    A row on its own costs what its functions cost if nothing is built around it: a batch of one row would
    cost ten times as much (`python -m bench runtime`, group rows).
    """

    @abstractmethod
    def row_step(self) -> RowStep | None:
        """Return the work on one row; None where the operator's options need batches."""


HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


class ErrorContext(Frozen):
    """What failed on a row, where that was written, and why; `error` is the exception that users see."""

    who: str
    where: Where | None
    cause: Exception
    reason: str
    error: type[PenstockError] = FunctionError


class RowErrors:
    """The failed rows of one step.

    `find_context` evaluates one row again to say what failed and why; a step whose functions must not be
    called twice on a row passes the contexts to `handle` instead.

    stops  whether the first row that fails stops the run
    """

    def __init__(
        self,
        site: StageContext,
        on_error: str,
        schema: pa.Schema,
        find_context: Callable[[dict[str, object]], ErrorContext] | None = None,
    ):
        self._site, self._on_error, self._schema, self._find_context = site, on_error, schema, find_context
        self.stops = on_error == OnError.FAIL
        self._dead_letter_schema = error_schema(schema) if on_error == OnError.DEAD_LETTER else None

    def handle(
        self,
        batch: Batch,
        failed: Mask,
        contexts: Sequence[ErrorContext] | None = None,
        *,
        counted: int | None = None,
    ) -> Batch | None:
        """Apply `on_error` to the failed rows of a batch; return the rows for `.errors`, if any.

        contexts  one for each failed row, in order
        counted   the number of rows that failed, where that is not the number of rows in the batch
        """
        failed_rows = batch.where(failed)

        def context_of(index: int) -> ErrorContext:
            if contexts is not None:
                return contexts[index]
            assert self._find_context is not None, "contexts are passed in, or there is a way to find them"
            return self._find_context(self._row(failed_rows, index))

        if self.stops:
            raise self._error(context_of(0), self._row(failed_rows, 0))
        self._site.accounts.errors += failed_rows.num_rows if counted is None else counted
        if self._site.reasons == [] and failed_rows.num_rows:
            self._site.reasons.append(context_of(0).reason)
        if self._dead_letter_schema is None:
            return None
        # The rows as they came, with the reason and the step: row by row, as failures are few.
        reasons = [context_of(index).reason for index in range(failed_rows.num_rows)]
        added = [pa.array(texts, pa.string()) for texts in (reasons, [self._site.step] * len(reasons))]
        columns = [*failed_rows.rows.columns, *added]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._dead_letter_schema)
        return Batch(rows, failed_rows.times, failed_rows.order)

    def _error(self, context: ErrorContext, values: dict[str, object]) -> PenstockError:
        """Return the error of a row that stops the run."""
        try:
            row = f"{Row(values, self._schema)!r:.400}"
        except Exception:  # a row that cannot be shown must not hide why it failed
            row = f"{values!r:.400}"
        error = context.error(
            f"{context.who} failed on a row",
            step=self._site.step,
            where=context.where or self._site.where,
            detail=f"{context.reason}; the row is {row}",
            hint=HINT,
        )
        error.__cause__ = context.cause
        return error

    def _row(self, batch: Batch, index: int) -> dict[str, object]:
        one = batch.rows.slice(index, 1)
        return {name: to_plain(one.column(name))[0] for name in self._schema.names}
