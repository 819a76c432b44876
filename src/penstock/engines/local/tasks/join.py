"""The task of a join: rows keep the port they came through, and cells search side by side.

One task owns the join, so that what is stored has one writer. The searches of its cells, which read only, run
on threads of their own when there are several (`stages/join/stage.py`): a fork and a join per batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from time import monotonic, perf_counter
from typing import Any

from penstock.accounts import Accounts, JoinAccounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels import Channel, EndOfRound, OneRow, row_order
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, StageStep
from penstock.engines.local.tasks.task import InputTask
from penstock.plan.plan import Step
from penstock.stages import policy
from penstock.stages.join.stage import JoinStage
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.rows.order import merge_batches
from penstock.timing.windows import AFTER_ALL

REVIEW_SECONDS = 2.0
"""How often a layout that is chosen by itself is looked at again."""
NEWS = 0.1
"""How much of a measured delay is that of the last batch."""


class CellThreads:
    """Threads that run the searches of the cells of one join; they begin with the first that are several.

    n_threads  how many may run side by side, that of the task among them
    delay      seconds until another thread has begun a search, as measured lately; None if none did
    """

    def __init__(self, step: str, n_threads: int) -> None:
        self._step, self._n_threads = step, n_threads
        self.delay: float | None = None
        self._pool: ThreadPoolExecutor | None = None

    def run(self, searches: Sequence[Callable[[], Any]]) -> Iterable[Any]:
        """Run all searches, some in this thread; return what they found, in their order."""
        n_others = min(self._n_threads, len(searches)) - 1
        if n_others <= 0:
            return [search() for search in searches]
        if self._pool is None:
            name = f"penstock-{self._step}-cell"
            self._pool = ThreadPoolExecutor(self._n_threads - 1, thread_name_prefix=name)
        # Why one queue: where there are more cells than threads, none of them is idle while others wait.
        waiting, hits = deque(enumerate(searches)), [None] * len(searches)
        asked_at = perf_counter()
        futures = [self._pool.submit(_run_waiting, waiting, hits) for _ in range(n_others)]
        try:
            _run_waiting(waiting, hits)
        finally:
            waiting.clear()  # if one has failed, nobody needs the others
            wait(futures)
        delay = min(future.result() for future in futures) - asked_at
        self.delay = delay if self.delay is None else self.delay + (delay - self.delay) * NEWS
        return hits

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _run_waiting(waiting: deque[tuple[int, Callable[[], Any]]], hits: list[Any]) -> float:
    """Run searches that wait, until none does, and put what they find in its place; return when it began."""
    began_at = perf_counter()
    while True:
        try:
            at, search = waiting.popleft()
        except IndexError:
            return began_at
        hits[at] = search()


class JoinStep(StageStep):
    """A join, fed as rows come, or with all rows of a round at its end.

    threads    those of its cells
    max_cells  how many a layout may have that is chosen while rows flow; 1: the layout stays as it is
    """

    stage: JoinStage  # type: ignore[assignment]  # it is fed by port

    def __init__(
        self,
        step: Step,
        accounts: Accounts,
        stage: JoinStage,
        output_delay: int,
        *,
        in_rounds: bool,
        threads: CellThreads,
        max_cells: int = 1,
    ) -> None:
        super().__init__(step, accounts, stage, output_delay, None)  # type: ignore[arg-type]
        self.threads, self.max_cells = threads, max_cells
        self._reviewed_at = monotonic()
        self._load = stage.expected_load
        self._predicted = self._measured = 0.0
        self._in_rounds = in_rounds
        self._by_port: dict[str, list[Batch]] = {}
        self._schemas = {port.port: port.stream.schema for port in step.inputs}

    @property
    def saves_changes(self) -> bool:
        """Implement `StageStep.saves_changes`."""
        return True

    def snapshot_changes(self, buckets: Collection[int]) -> Mapping[int, bytes]:
        """Implement `StageStep.snapshot_changes`."""
        return self.stage.snapshot_changes(buckets)

    def feed_port(self, port: str, batch: Batch) -> None:
        """Take rows of a port in."""
        if self._in_rounds:
            self._by_port.setdefault(port, []).append(batch)
        else:
            self.emit(self.stage.on_batch(port, batch, self.frontier.watermark))

    def _review_layout(self, *, is_last: bool) -> None:
        """Change the layout, if the rates of the last seconds ask for another."""
        seconds = monotonic() - self._reviewed_at
        if seconds < REVIEW_SECONDS and not is_last:
            return
        self._reviewed_at += seconds
        layout = self.stage.layout
        self._predicted = self.stage.predict_latency(self._load)  # by what was known before these seconds
        load = self.stage.take_load(seconds or 1e-9)
        if self.threads.delay is not None:
            load = replace(load, cell_delay=self.threads.delay)
        self._load = load
        self._measured = self.stage.measure_latency(load)
        if self.max_cells > 1 and not is_last:
            better = load.choose_layout(self.max_cells)
            if better != layout and load.is_worth(layout, better):
                self.stage.change_layout(better)

    def measure(self, accounts: Accounts) -> JoinAccounts:
        """Return the accounts of the join with its cells, and what was predicted and measured for them."""
        return JoinAccounts(
            **asdict(accounts),
            layout=self.stage.describe_cells(),
            rates=self._load.rates,
            stored=self.stage.n_stored,
            predicted_ms=self._predicted * 1e3,
            measured_ms=self._measured * 1e3,
        )

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Process the rows that wait as one round, and forget what the watermark has passed."""
        before = self.frontier.watermark
        reached = before if frontier.idle else max(before, frontier.watermark)
        self.frontier = Frontier(reached, frontier.idle, frontier.over)
        waiting, self._by_port = self._by_port, {}
        batches = {port: merge_batches(parts, self._schemas[port]) for port, parts in waiting.items()}
        self.emit(self.stage.on_round(batches, before, AFTER_ALL if frontier.over else reached))
        self._review_layout(is_last=frontier.over)
        return Frontier(reached - self._output_delay, frontier.idle, frontier.over)


class JoinTask(InputTask):
    """A join and the steps chained behind it."""

    def __init__(self, number: int, replica: int, chain: list[ChainedStep], progress: Progress) -> None:
        super().__init__(number, replica, chain, progress)
        step = chain[0]
        assert isinstance(step, JoinStep), "the first step is the join"
        self._join = step

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        """Process the rows of a port, or keep them for the end of their round."""
        if self._in_rounds:
            channel.kept.append(batch)
        else:
            self._join.feed_port(channel.port, batch)

    def take(self, channel: Channel, message: Any) -> None:
        """Handle one message; single rows, and a few in a batch, with those behind them that wait already.

        Their rounds end with the last of them. A row that its own round would find late is not taken before
        that round: so what is late is the same.
        """
        if not channel.items or self._in_rounds or self.progress.is_observed:
            super().take(channel, message)
        elif type(message) is tuple and message[0] is not None:
            self._take_rows(channel, message)
        elif type(message) is RowBatch:
            self._take_batches(channel, message)
        else:
            super().take(channel, message)

    def _take_batches(self, channel: Channel, message: RowBatch) -> None:
        """Process batches of a few plain rows, and end their rounds, of the last if it has ended."""
        batches, n_rows, items = [message], message.num_rows, channel.items
        end: EndOfRound | None = None
        while items and type(items[0]) is EndOfRound:
            if end is not None and end.round_group != items[0].round_group:
                break
            end = channel.pop()
            assert isinstance(end, EndOfRound), "it is the message that was looked at"
            following = items[0] if items else None
            if not isinstance(following, RowBatch):
                break
            n_rows += following.num_rows
            times, _ = following.plain_times_and_order()
            is_late = min(times, default=math.inf) < end.frontier.watermark
            if is_late or end.frontier.idle or n_rows > policy.SIZES.few_rows:
                break
            batches.append(channel.pop())
        self.on_rows(channel, merge_batches(batches, message.schema))
        if end is not None:
            super().take(channel, end)

    def _take_rows(self, channel: Channel, message: OneRow) -> None:
        """Process single rows, and end their rounds."""
        rows, most = [message], policy.SIZES.few_rows
        items, last = channel.items, message
        while items and len(rows) < most and type(items[0]) is tuple and items[0][0] is not None:
            if items[0][2] < last[5].watermark or last[5].idle:
                break
            last = channel.pop()
            rows.append(last)
        values, numbers, times, shifts, origins, frontiers, _ = zip(*rows, strict=True)
        assert channel.schema is not None, "whoever sends single rows has set their schema"
        places = zip(origins, numbers, shifts, strict=True)
        order = zip(*[row_order(origin, number + shift) for origin, number, shift in places], strict=True)
        self.on_rows(channel, RowBatch(values, channel.schema, times, tuple(order)))
        super().take(channel, EndOfRound(origins[-1][0], numbers[-1], frontiers[-1]))

    def process_round(self, round_group: int, number: int) -> None:
        """Feed the rows that were kept to their ports, and end the round."""
        if self._in_rounds:
            for channel in self.channels:
                for batch in channel.take_kept():
                    self._join.feed_port(channel.port, batch)
        super().process_round(round_group, number)

    def complete(self, *, failed: bool) -> None:
        """End the threads of the cells too."""
        self._join.threads.close()
        super().complete(failed=failed)
