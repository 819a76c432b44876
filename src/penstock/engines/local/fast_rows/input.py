"""The row path of a task that reads one channel: rows come through it, or by a direct call of its feeder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.fast_rows.context import RowContext
from penstock.engines.local.fast_rows.pipeline import RowPipeline, build_task_pipeline
from penstock.engines.local.metrics.statistics import WRITE_BLOCKED

if TYPE_CHECKING:
    from penstock.engines.local.tasks.operator import ChainTask


class RowInput:
    """Takes rounds of single rows for a task.

    pipeline  what processes them
    """

    def __init__(self, task: ChainTask, pipeline: RowPipeline) -> None:
        self._task, self.pipeline = task, pipeline
        (self._channel,) = task.channels
        self._n_before = self._round_group = 0

    def run(self) -> None:
        """Takes rows from the channel, whose first item is one, while the quantum lasts and there is room."""
        task, channel, pipeline = self._task, self._channel, self.pipeline
        items, half, writer, clock = channel.items, channel.capacity / 2, channel.writer, task.now
        full, number, context, deadline = False, items[0][1], RowContext(items[0][4]), task.deadline
        self.begin(context, number, channel.frontier)
        try:
            while not full and items and type(items[0]) is tuple:
                row, number, context.time, context.shift, _, frontier, _ = items.popleft()
                if writer.statistics.state is WRITE_BLOCKED and len(items) <= half:
                    channel.dispatcher.wake(writer, WRITE_BLOCKED)
                if frontier is not channel.frontier:
                    self.advance_frontier(frontier)
                full = pipeline.put_row(None, number) if row is None else pipeline.process(row, number)
                number += 1
                full = full or clock() >= deadline
        finally:
            n_rows, spent_ns = self._end_rounds(number)
            task.statistics.exclude_borrowed(clock(), spent_ns)
            channel.record_taken(n_rows)

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> RowPipeline:
        """Begins a sequence of rounds, the first of this number; returns the pipeline that takes the rows.

        frontier  of the feeder
        """
        # Invariant: rows come singly from one source only, so all tasks count the same rounds.
        assert self._task.round == number, f"round {number} came to a task in round {self._task.round}"
        self._n_before, self._round_group = self.pipeline.n_in, context.origin[0]
        self.pipeline.begin(context, number, self._task.frontier)
        if frontier is not self._channel.frontier:
            self.advance_frontier(frontier)
        return self.pipeline

    def advance_frontier(self, frontier: Frontier) -> None:
        """Moves the feeder's frontier, which the round of the next row reaches."""
        self._channel.frontier = frontier
        self._task.frontier = merge_frontiers((frontier,), self._task.frontier)
        self.pipeline.output.advance_frontier(self._task.frontier)

    def end(self, number: int) -> tuple[int, int]:
        """Ends a sequence of direct calls before this round.

        Returns the number of rows that came, and the nanoseconds spent on behalf of tasks behind.
        """
        n_rows, spent_ns = self._end_rounds(number)
        self._channel.record_direct(n_rows)
        return n_rows, spent_ns

    def _end_rounds(self, number: int) -> tuple[int, int]:
        if number > self._task.round:
            self._task.skip_to_round(self._round_group, number)
        return self.pipeline.n_in - self._n_before, self.pipeline.output.end(number)


def build_row_input(task: ChainTask) -> RowInput | None:
    """Returns the row path of a task, if it reads one channel of data and its first step takes rows."""
    if len(task.channels) != 1 or not task.data:
        return None
    pipeline = build_task_pipeline(task, task.round_end_steps, task.progress)
    return None if pipeline is None else RowInput(task, pipeline)
