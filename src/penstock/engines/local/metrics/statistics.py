"""What a task counts while it runs: the basis of schedulers, elasticity, metrics and events.

Plain attributes with one writer each, so that no lock is needed to count and none to look: `put_*` belongs
to whoever writes a port (under the channel's lock when several do), `taken_*` to the task that reads it, and
everything about quanta to the worker that runs the task. Others may see a port a batch ahead or behind; no
decision depends on that. All times are integer nanoseconds of the run's own monotonic clock, all counts are
added per batch, never per row. C-Stream (3.2.6) names what a scheduler plug-in may ask for.
"""

from __future__ import annotations

from math import inf

from penstock.frozen import dataclass

READY = "ready"
RUNNING = "running"
READ_BLOCKED = "read-blocked"
WRITE_BLOCKED = "write-blocked"
COMPLETED = "completed"

DECAY = 0.8  # factor on the weight of a quantum with every later one: about the last five count


@dataclass(slots=True, eq=False)
class InputStatistics:
    """One input port: what was put in, what was read, what waits.

    capacity          rows that fit, or infinity
    capacity_batches  batches that fit, or infinity
    oldest            when the batch at the front was put in; None when nothing waits
    full_ns           how long it has been full, without the time since `full_since`
    recent_rows       rows read in the last quanta, decayed like the task's `recent_ns`
    """

    capacity: float = inf
    capacity_batches: float = inf
    put_rows: int = 0
    put_batches: int = 0
    taken_rows: int = 0
    taken_batches: int = 0
    oldest: int | None = None
    full_ns: int = 0
    full_since: int | None = None
    recent_rows: float = 0.0
    seen_rows: int = 0

    @property
    def waiting_rows(self) -> int:
        """Return the number of rows put in and not yet read."""
        return self.put_rows - self.taken_rows

    @property
    def waiting_batches(self) -> int:
        """Return the number of batches put in and not yet read."""
        return self.put_batches - self.taken_batches

    @property
    def space(self) -> float:
        """Return the number of rows that still fit; a limit of batches assumes their mean size so far."""
        space = self.capacity - self.waiting_rows
        if self.capacity_batches != inf:
            mean = self.put_rows / self.put_batches if self.put_batches else 1.0
            space = min(space, (self.capacity_batches - self.waiting_batches) * mean)
        return max(0.0, space)

    def mark_full(self, now: int) -> None:
        """Mark the port as full from now on: a writer found no room."""
        if self.full_since is None:
            self.full_since = now

    def mark_free(self, now: int) -> None:
        """Mark the port as having room again."""
        since, self.full_since = self.full_since, None
        if since is not None:
            self.full_ns += now - since

    def full_until(self, now: int) -> int:
        """Return the nanoseconds spent full so far, including the current spell."""
        since = self.full_since
        return self.full_ns + (now - since if since is not None else 0)


@dataclass(slots=True, eq=False)
class OutputStatistics:
    """One output port: what left, and the input ports that it writes to."""

    subscribers: tuple[InputStatistics, ...] = ()
    rows: int = 0
    batches: int = 0
    recent_rows: float = 0.0
    seen_rows: int = 0


@dataclass(slots=True, eq=False)
class TaskStatistics:
    """One task, which is one replica of a chain of steps.

    The worker calls `start` when it takes the task and `stop` when the task yields, with the state it went
    into; whoever wakes a blocked task calls `wake`. Everything about time follows from these three.

    dedicated   it has a thread of its own, and needs none of the pool
    last_ran    when a worker last took it; None before the first time
    n_quanta    how often a worker took it
    ready_ns    how long it was ready and no worker took it
    recent_ns   running time of the last quanta, decayed
    recent_rows rows of the last quanta (read, or emitted by a source), decayed
    """

    step: str
    replica: int = 0
    inputs: tuple[InputStatistics, ...] = ()
    outputs: tuple[OutputStatistics, ...] = ()
    since: int = 0
    state: str = READY
    dedicated: bool = False
    last_ran: int | None = None
    n_quanta: int = 0
    running_ns: int = 0
    ready_ns: int = 0
    read_blocked_ns: int = 0
    write_blocked_ns: int = 0
    recent_ns: float = 0.0
    recent_rows: float = 0.0

    @property
    def source(self) -> bool:
        """Return whether it reads no port."""
        return not self.inputs

    @property
    def rows_in(self) -> int:
        """Return the number of rows read so far on all ports."""
        return sum(port.taken_rows for port in self.inputs)

    @property
    def rows_out(self) -> int:
        """Return the number of rows emitted so far on all ports."""
        return sum(port.rows for port in self.outputs)

    @property
    def waiting_rows(self) -> int:
        """Return the number of rows that wait on all input ports."""
        return sum(port.put_rows - port.taken_rows for port in self.inputs)

    @property
    def oldest(self) -> int | None:
        """Return when the batch that waits longest was put in; None when nothing waits."""
        stamps = [port.oldest for port in self.inputs if port.oldest is not None]
        return min(stamps, default=None)

    @property
    def service_ns(self) -> float:
        """Return the running time per row in the last quanta; 0 before the first row."""
        return self.recent_ns / self.recent_rows if self.recent_rows else 0.0

    @property
    def selectivity(self) -> float:
        """Return rows out per row in so far; 1 for sources and before the first row."""
        rows = self.rows_in
        return self.rows_out / rows if rows else 1.0

    def running_until(self, now: int) -> int:
        """Return the nanoseconds spent running so far, including the current quantum."""
        return self.running_ns + (now - self.since if self.state == RUNNING else 0)

    def waiting_until(self, now: int) -> int:
        """Return the nanoseconds spent read-blocked so far, including the current wait."""
        return self.read_blocked_ns + (now - self.since if self.state == READ_BLOCKED else 0)

    def start(self, now: int) -> None:
        """Start a quantum: a worker takes the task."""
        self.ready_ns += now - self.since
        self.state, self.since, self.last_ran = RUNNING, now, now
        self.n_quanta += 1

    def stop(self, now: int, state: str) -> None:
        """End a quantum: the task is in `state` now; the rows of the quantum go into the decayed sums."""
        took = now - self.since
        self.running_ns += took
        self.state, self.since = state, now
        read = wrote = 0
        for port in self.inputs:
            rows = port.taken_rows
            n_rows = rows - port.seen_rows
            port.seen_rows = rows
            port.recent_rows = port.recent_rows * DECAY + n_rows
            read += n_rows
        for out in self.outputs:
            rows = out.rows
            n_rows = rows - out.seen_rows
            out.seen_rows = rows
            out.recent_rows = out.recent_rows * DECAY + n_rows
            wrote += n_rows
        self.recent_ns = self.recent_ns * DECAY + took
        self.recent_rows = self.recent_rows * DECAY + (read if self.inputs else wrote)

    def exclude_idle(self, now: int, worked: int) -> None:
        """Count all but `worked` of the time since the start as waiting: the task was borrowed."""
        waited = max(now - self.since - worked, 0)
        self.read_blocked_ns += waited
        self.since += waited

    def exclude_borrowed(self, now: int, worked: int) -> None:
        """Leave `worked` out of the time since the start: the worker spent it on a borrowed task."""
        self.since += min(worked, now - self.since)

    def wake(self, now: int) -> None:
        """Make a blocked task ready, and add its wait to reading or writing."""
        if self.state == READ_BLOCKED:
            self.read_blocked_ns += now - self.since
        elif self.state == WRITE_BLOCKED:
            self.write_blocked_ns += now - self.since
        self.state, self.since = READY, now
