"""Replicas of busy operators on the simulated machine, with real statistics and counted queues.

A queue holds no rows, only the number that arrived at each time. A replica that has processed a chunk must
deliver its output to the targets before it can continue, which is back-pressure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bench.simulation.topology import Busy
from penstock.engines.local.metrics.statistics import InputStatistics, OutputStatistics, TaskStatistics


class Replica:
    """One replica of a busy operator."""

    __slots__ = ("blocked_writers", "debts", "operator", "owed", "port", "queue", "statistics")

    def __init__(self, operator: Operator, replica: int, now: int) -> None:
        self.operator = operator
        self.port = InputStatistics(capacity=operator.capacity)
        self.statistics = TaskStatistics(
            operator.busy.name,
            replica,
            () if operator.source else (self.port,),
            operator.outputs_of_a_replica(),
            now,
        )
        self.queue: deque[tuple[int, int]] = deque()
        self.debts: deque[tuple[Operator, int]] = deque()
        self.owed = 0.0
        self.blocked_writers: list[Replica] = []

    @property
    def full(self) -> bool:
        """Return whether a writer has to wait."""
        return self.port.put_rows - self.port.taken_rows >= self.operator.capacity

    def put(self, rows: int, now: int) -> None:
        """Add rows to the queue, which may exceed its capacity by one chunk (C-Stream, Algorithm 3)."""
        port = self.port
        if not self.queue:
            port.oldest = now
        self.queue.append((now, rows))
        port.put_rows += rows
        port.put_batches += 1
        if self.full:
            port.mark_full(now)

    def take(self, most: int, now: int) -> int:
        """Take up to `most` rows out of the queue."""
        n_taken, port = 0, self.port
        while self.queue and n_taken < most:
            stamp, rows = self.queue.popleft()
            left = n_taken + rows - most
            if left > 0:
                self.queue.appendleft((stamp, left))
                rows -= left
            else:
                port.taken_batches += 1
            n_taken += rows
        port.taken_rows += n_taken
        port.oldest = self.queue[0][0] if self.queue else None
        if not self.full:
            port.mark_free(now)
        return n_taken

    def produce(self, rows: int) -> None:
        """Add the output of processed rows to the pending output, split evenly among the targets."""
        out = self.owed + rows * self.operator.busy.selectivity
        whole = int(out)
        self.owed = out - whole
        targets = self.operator.targets
        if not targets:
            return
        share, rest = divmod(whole, len(targets))
        for i in range(len(targets)):
            target = (self.operator.next_target + i) % len(targets)
            amount = share + (1 if i < rest else 0)
            if amount:
                self.debts.append((targets[target], amount))
        self.operator.next_target = (self.operator.next_target + rest) % len(targets)

    def deliver(self, now: int) -> Replica | None:
        """Deliver the pending output; return the replica whose queue is full, if there is one."""
        while self.debts:
            target, rows = self.debts[0]
            reader = target.next_replica()
            if reader.full:
                return reader
            self.debts.popleft()
            target.advance_reader()
            reader.put(rows, now)
            out = self.statistics.outputs[0]
            out.rows += rows
            out.batches += 1
        return None


class Operator:
    """A busy operator and its replicas."""

    def __init__(self, busy: Busy, capacity: int, *, source: bool) -> None:
        self.busy, self.capacity, self.source = busy, capacity, source
        self.cost_ns = busy.cost_ns
        self.targets: list[Operator] = []
        self.replicas: list[Replica] = []
        self.next_target = 0  # round robin among the targets
        self._reader = 0  # round robin among the replicas, as C-Stream splits (4.2)

    def outputs_of_a_replica(self) -> tuple[OutputStatistics, ...]:
        """Return one port that writes to every replica of every target."""
        ports = tuple(node.port for target in self.targets for node in target.replicas)
        return (OutputStatistics(ports),) if self.targets else ()

    def next_replica(self) -> Replica:
        """Return the replica that receives the next rows, by round robin."""
        return self.replicas[self._reader % len(self.replicas)]

    def advance_reader(self) -> None:
        """Advance the round robin among the replicas."""
        self._reader += 1

    def resize(self, n: int, now: int) -> Sequence[Replica]:
        """Set the number of replicas and return the new ones; removed ones finish the rows they hold."""
        new = [Replica(self, len(self.replicas) + i, now) for i in range(n - len(self.replicas))]
        self.replicas = [*self.replicas[:n], *new]
        return new

    def subscribe(self) -> None:
        """Update the ports that the replicas write to in their statistics."""
        for node in self.replicas:
            for out in node.statistics.outputs:
                out.subscribers = tuple(n.port for target in self.targets for n in target.replicas)
