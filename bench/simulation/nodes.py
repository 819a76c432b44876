"""Nodes of the simulated machine: replicas of busy operators with real statistics and counted queues.

A queue holds no rows, only how many came when. A node that has worked on a chunk of rows owes its targets
the rows that it made; it cannot go on before it has delivered them, which is back-pressure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bench.simulation.topology import Busy
from penstock.engines.local.metrics.statistics import InputStatistics, OutputStatistics, TaskStatistics


class Node:
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
        self.blocked_writers: list[Node] = []

    @property
    def full(self) -> bool:
        """Return whether a writer has to wait."""
        return self.port.put_rows - self.port.taken_rows >= self.operator.capacity

    def put(self, rows: int, now: int) -> None:
        """Rows come into the queue; like C-Stream's (Algorithm 3) it may go over its limit by one chunk."""
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
        taken, port = 0, self.port
        while self.queue and taken < most:
            stamp, rows = self.queue.popleft()
            left = taken + rows - most
            if left > 0:
                self.queue.appendleft((stamp, left))
                rows -= left
            else:
                port.taken_batches += 1
            taken += rows
        port.taken_rows += taken
        port.oldest = self.queue[0][0] if self.queue else None
        if not self.full:
            port.mark_free(now)
        return taken

    def made(self, rows: int) -> None:
        """Rows were worked on: what comes of them is owed to the targets, split as evenly as it goes."""
        out = self.owed + rows * self.operator.busy.selectivity
        whole = int(out)
        self.owed = out - whole
        targets = self.operator.targets
        if not targets:
            return
        share, rest = divmod(whole, len(targets))
        for i in range(len(targets)):
            turn = (self.operator.turn + i) % len(targets)
            amount = share + (1 if i < rest else 0)
            if amount:
                self.debts.append((targets[turn], amount))
        self.operator.turn = (self.operator.turn + rest) % len(targets)

    def deliver(self, now: int) -> Node | None:
        """Give the targets what is owed; the replica that has no room, if one has none."""
        while self.debts:
            target, rows = self.debts[0]
            reader = target.next_replica()
            if reader.full:
                return reader
            self.debts.popleft()
            target.turned()
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
        self.replicas: list[Node] = []
        self.turn = 0  # whose turn it is among the targets
        self._reader = 0  # whose turn it is among the replicas: round robin, as C-Stream splits (4.2)

    def outputs_of_a_replica(self) -> tuple[OutputStatistics, ...]:
        """Return one port that writes to every replica of every target."""
        ports = tuple(node.port for target in self.targets for node in target.replicas)
        return (OutputStatistics(ports),) if self.targets else ()

    def next_replica(self) -> Node:
        """Return the replica whose turn it is to get rows."""
        return self.replicas[self._reader % len(self.replicas)]

    def turned(self) -> None:
        """It got them."""
        self._reader += 1

    def resize(self, n: int, now: int) -> Sequence[Node]:
        """Have n replicas from now on; those that have to go finish what they hold. Gives the new ones."""
        new = [Node(self, len(self.replicas) + i, now) for i in range(n - len(self.replicas))]
        self.replicas = [*self.replicas[:n], *new]
        return new

    def subscribe(self) -> None:
        """Tell the replicas' statistics which ports they write to."""
        for node in self.replicas:
            for out in node.statistics.outputs:
                out.subscribers = tuple(n.port for target in self.targets for n in target.replicas)
