"""A machine of simulated cores that runs replicas in virtual time, scheduled by a real scheduler.

A worker takes a replica for a quantum, works on its rows chunk by chunk, and releases it when it blocks or
when the quantum is over, as C-Stream does (3.2). Picking a replica takes time, and only one worker picks at a
time: that is the cost of too many threads. A share of the work may need a resource that only one worker can
hold, and every handover of it costs: that models the GIL, or memory bandwidth.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from bench.simulation.replicas import Operator, Replica
from bench.simulation.topology import US, Topology
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED, TaskStatistics
from penstock.engines.local.schedulers import Scheduler

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs that the machine charges, and the sizes of its queues and chunks.

    pick_ns     how long a worker holds the lock while it picks a replica
    switch_ns   the time it then takes to resume the replica
    chunk       rows processed between two checks of ports and quantum
    capacity    rows that fit into a queue
    quantum_ns  how long a replica may run while others are ready
    shared      share of the rows' cost that needs a resource of one worker at a time
    handover_ns the time to acquire that resource while another worker holds it
    jitter      maximal deviation of a chunk's cost, as a share of it
    """

    pick_ns: int = 1 * US
    switch_ns: int = 4 * US
    chunk: int = 8
    capacity: int = 32
    quantum_ns: int = 5 * MS
    shared: float = 0.0
    handover_ns: int = 20 * US
    jitter: float = 0.0


class Machine:
    """Runs a topology; `run_until` moves virtual time on, threads and replicas may change in between."""

    def __init__(
        self, topology: Topology, scheduler: Scheduler, costs: Costs, threads: int, random: Random
    ) -> None:
        self.now = 0
        self.costs, self.scheduler = costs, scheduler
        self.threads = 0
        sources = topology.sources
        self.operators = {
            busy.name: Operator(busy, costs.capacity, source=busy.name in sources)
            for busy in topology.operators
        }
        for operator in self.operators.values():
            operator.targets = [self.operators[name] for name in operator.busy.targets]
        self.rate: float | None = None  # rows per second that each source may emit; None is no limit
        self._allowed_from, self._allowance = 0, 0.0
        self._lock_free = 0
        self._shared_free = 0
        self._random = random
        self._events: list[tuple[int, int, int, Replica | None, int]] = []
        self._n_events = 0
        self._ready: list[Replica] = []
        self._idle: list[int] = []
        self._quantum_began: dict[int, int] = {}
        self.resize(dict.fromkeys(self.operators, 1))
        self.set_threads(threads)

    def task_statistics(self) -> Iterable[TaskStatistics]:
        """Yield the statistics of all replicas but those that only finish what they hold."""
        for operator in self.operators.values():
            for node in operator.replicas:
                yield node.statistics

    @property
    def n_finished(self) -> int:
        """Return the number of rows that the operators without targets have read."""
        return sum(
            node.port.taken_rows
            for operator in self.operators.values()
            if not operator.targets
            for node in operator.replicas
        )

    def replicas(self) -> dict[str, int]:
        """Return the number of replicas of each operator."""
        return {name: len(operator.replicas) for name, operator in self.operators.items()}

    def set_threads(self, n: int) -> None:
        """Use n workers from now on; surplus workers finish their chunk."""
        self._idle = [worker for worker in self._idle if worker < n]
        known = {*self._idle, *self._quantum_began}
        self.threads = n
        self._idle += [worker for worker in range(n) if worker not in known]
        self._assign()

    def resize(self, replicas: dict[str, int]) -> None:
        """Set the number of replicas of operators."""
        for name, n in replicas.items():
            operator = self.operators[name]
            gone = operator.replicas[n:]
            self._ready += operator.resize(n, self.now)
            for node in gone:
                self._wake_writers(node)
        for operator in self.operators.values():
            operator.subscribe()
        self._assign()

    def run_until(self, until: int) -> None:
        """Advance virtual time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, worker, node, rows = heapq.heappop(self._events)
            if node is None:
                self._wake_sources()
            elif rows < 0:
                self._go_on(worker, node)
            else:
                node.produce(rows)
                self._go_on(worker, node)
        self.now = until

    def _later(self, at: int, worker: int, node: Replica | None, rows: int) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (at, self._n_events, worker, node, rows))

    def _assign(self) -> None:
        """Assign ready replicas to idle workers."""
        while self._idle and self._ready:
            self._begin(self._idle.pop())

    def _begin(self, worker: int) -> None:
        """Let a worker pick a replica; its quantum begins after the cost of the lock and of the switch."""
        node = self.scheduler.choose(self._ready, worker, self.now)
        self._ready.remove(node)
        self._lock_free = max(self.now, self._lock_free) + self.costs.pick_ns
        start = self._lock_free + self.costs.switch_ns
        self._quantum_began[worker] = start
        node.statistics.start(start)
        self._later(start, worker, node, -1)

    def _go_on(self, worker: int, node: Replica) -> None:
        """Deliver the pending output, then take the next chunk or end the quantum."""
        full = node.deliver(self.now) if node.debts else None
        self._wake_readers(node)
        if full is not None:
            full.blocked_writers.append(node)
            self._stop(worker, node, WRITE_BLOCKED)
            return
        over = self.now - self._quantum_began[worker] >= self.costs.quantum_ns and self._ready
        if over or worker >= self.threads:
            self._stop(worker, node, READY)
            return
        rows = self._admit_rows(self.costs.chunk) if node.operator.source else self._take(node)
        if rows:
            self._later(self._completion_time(rows * node.operator.cost_ns), worker, node, rows)
        else:
            self._stop(worker, node, READ_BLOCKED)

    def _completion_time(self, cost: int) -> int:
        """Return when a chunk that begins now will be finished."""
        costs = self.costs
        if costs.jitter:
            cost = round(cost * (1 + costs.jitter * (2 * self._random.random() - 1)))
        if not costs.shared:
            return self.now + cost
        shared = round(cost * costs.shared)
        contended = self._shared_free > self.now
        begins = self._shared_free + costs.handover_ns if contended else self.now
        self._shared_free = begins + shared
        return begins + cost

    def _take(self, node: Replica) -> int:
        rows = node.take(self.costs.chunk, self.now)
        if node.blocked_writers and not node.full:
            self._wake_writers(node)
        return rows

    def _stop(self, worker: int, node: Replica, state: str) -> None:
        node.statistics.stop(self.now, state)
        del self._quantum_began[worker]
        if state == READY:
            self._ready.append(node)
        elif state == READ_BLOCKED and node.operator.source:
            self._later(self.now + MS, -1, None, 0)
        if worker < self.threads:
            self._idle.append(worker)
        self._assign()

    def _wake_readers(self, node: Replica) -> None:
        for target in node.operator.targets:
            for reader in target.replicas:
                if reader.queue and reader.statistics.state == READ_BLOCKED:
                    self._wake(reader)
        if self._idle:
            self._assign()

    def _wake_writers(self, node: Replica) -> None:
        writers, node.blocked_writers = node.blocked_writers, []
        for writer in writers:
            if writer.statistics.state == WRITE_BLOCKED:
                self._wake(writer)

    def _wake_sources(self) -> None:
        for operator in self.operators.values():
            if operator.source:
                for node in operator.replicas:
                    if node.statistics.state == READ_BLOCKED:
                        self._wake(node)
        self._assign()

    def _wake(self, node: Replica) -> None:
        node.statistics.wake(self.now)
        self._ready.append(node)

    def _admit_rows(self, most: int) -> int:
        """Return the number of rows that a source may emit now, by the offered rate."""
        if self.rate is None:
            return most
        self._allowance += (self.now - self._allowed_from) * self.rate / 1e9
        self._allowed_from = self.now
        self._allowance = min(self._allowance, self.rate / 100)  # unused allowance expires
        rows = min(most, int(self._allowance))
        self._allowance -= rows
        return rows
