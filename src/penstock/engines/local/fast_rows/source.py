"""The row path of a source: reads plain rows, and runs each through the pipeline as a round of its own.

It is taken by the only source of its round group whose reader gives single rows (`batch=1`), with or without
a listener and a checkpoint. The round that a checkpoint saves is carried as a batch: its end then passes all
tasks in band, as the barrier does on the batch path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.crash_points import READ, pass_crash_point
from penstock.engines.frontiers import Frontier
from penstock.engines.local.fast_rows.context import RowContext
from penstock.engines.local.fast_rows.pipeline import RowPipeline, build_source_pipeline

if TYPE_CHECKING:
    from penstock.engines.local.tasks.source import SourceTask


class RowSource:
    """Reads rounds of single rows for a source task."""

    def __init__(self, task: SourceTask, pipeline: RowPipeline) -> None:
        self._task, self._pipeline, self._progress = task, pipeline, task.progress
        self._reader, self._group = task.source.reader, task.round_group
        self._context = RowContext((task.round_group, self._reader.rank))

    def run(self) -> bool:
        """Runs rounds while the quantum lasts and there is room; returns False after the last.

        An item that is no single plain row is carried as a batch.
        """
        task, reader, context, number = self._task, self._reader, self._context, self._task.round
        rows, timed, frontier, process = reader.open(), reader.timed, reader.frontier, self._pipeline.process
        clock, deadline, progress = task.now, task.deadline, self._progress
        limit, observed = progress.limit(self._group), progress.is_observed
        context.shift = reader.n_rows - number
        self._pipeline.begin(context, number, frontier)
        try:
            while self._begin(number) if observed else number < limit and not progress.stopping:
                try:
                    row = next(rows, None)
                except Exception as cause:
                    raise reader.read_error(cause) from cause
                if type(row) is not dict or (observed and progress.saves_round(number)):
                    break
                before = frontier
                if timed:
                    time = reader.time_of(row)
                    if time is None:
                        break
                    context.time, frontier = time, reader.frontier
                    if frontier is not before:
                        self._pipeline.output.advance_frontier(frontier)
                if observed:
                    self._report_read(number, before, frontier)
                full = process(row, number)
                number += 1
                if full or clock() >= deadline:
                    return True
            else:
                return False
        finally:
            n_rounds, task.round = number - task.round, number
            task.statistics.exclude_borrowed(clock(), self._pipeline.output.end(number))
            reader.count_row_batches(n_rounds)
            progress.record_rounds(self._group, number)
        batch = reader.accept(row)
        return task.carry(batch, is_last=batch is None)

    def _begin(self, number: int) -> bool:
        return self._progress.begin(self._group, number)

    def _report_read(self, number: int, before: Frontier, frontier: Frontier) -> None:
        """Reports that the row of a round was read, as `SourceTask.carry` does for a batch."""
        progress, name = self._progress, self._reader.step.name
        progress.stamp_arrival(self._group, number)
        if progress.checkpoint is not None:
            pass_crash_point(READ)
        progress.record_read(self._group, number, name, 1)
        progress.report_watermark(name, before.watermark, frontier.watermark)


def build_row_source(task: SourceTask) -> RowSource | None:
    """Returns the row path of a source, if its reader gives rows and no other source shares its rounds."""
    if not task.source.reader.gives_rows or not task.progress.is_only_source(task.round_group):
        return None
    return RowSource(task, build_source_pipeline(task, task.round_end_steps, task.progress))
