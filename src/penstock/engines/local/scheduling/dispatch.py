"""Who runs next: the states of nodes and the scheduler's base algorithms (C-Stream, 3.2, algorithms 4 to 8).

A node is ready, running, blocked on reading or writing, or completed. Blocking sets the state first and then
looks again whether the node could go on, and whoever writes or reads a channel looks at the state afterwards:
so no wake-up is lost, although channels have no locks. Unlike in the paper's Algorithm 4, a closed port alone
does not end a wait: closing is a message like any other, and the node reads it.

If nothing is ready and nothing runs, nodes wait for room that only they themselves could make (a loop that
pairs unequal branches of one stream, say). Then the smallest full channel gets room for more, as in Parks'
bounded scheduling of process networks: a run stays in bounds if it can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from penstock.engines.local.metrics.statistics import COMPLETED, READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.schedulers.protocol import Scheduler
from penstock.errors import EngineError, describe_cause

if TYPE_CHECKING:
    from penstock.engines.local.tasks.task import Task

Failure = tuple[tuple[int, int], BaseException]


class Dispatcher:
    """The nodes of a run, and whose turn it is.

    now      nanoseconds, or steps of a simulated run
    quantum  how long a node may run before others have their turn
    random   with it, turns have lengths by chance (between 1 and `quantum`): simulated runs
    """

    def __init__(
        self, scheduler: Scheduler, now: Callable[[], int], quantum: int, random: Random | None = None
    ) -> None:
        self._scheduler, self.now, self._quantum, self._random = scheduler, now, quantum, random
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.tasks: list[Task] = []
        self._ready: list[Task] = []
        self._n_running = self._n_live = 0
        self._failures: list[Failure] = []
        self.pinned = False  # workers take the nodes that prefer them first
        self.allows_borrowing = True  # nodes that wait may be worked for by those that feed them
        self.may_starve = False  # fed by hand: to have nothing to do is no fault
        self.on_failure: Callable[[Task, BaseException], None] = lambda node, failure: None
        self.aborted = False

    def begin(self, nodes: list[Task]) -> None:
        """All nodes are ready."""
        self.tasks, self._n_live = nodes, len(nodes)
        for node in nodes:
            node.woken = threading.Condition(self.lock)
            node.statistics.since = self.now()
            if not node.dedicated:
                self._ready.append(node)

    @property
    def is_over(self) -> bool:
        """Whether all nodes have completed, or the run was broken off."""
        return self._n_live == 0 or self.aborted

    @property
    def failure(self) -> BaseException | None:
        """What stopped the run: of several failures that of the earliest round and step."""
        return min(self._failures, key=lambda each: each[0])[1] if self._failures else None

    def abort(self) -> None:
        """Break off: workers leave, whatever waits."""
        with self.lock:
            self._break_off()

    def next_task(self, worker: int, *, only: Task | None = None) -> Task | None:
        """A node to run, by the scheduler, or the one that has a thread of its own; None if none is ready."""
        if only is not None:
            if only.statistics.state is not READY:
                return None
            node = only
        else:
            found = self._chosen(worker) if self._ready else None
            if found is None:
                return None
            node = found
            self._ready.remove(node)
        now = self.now()
        node.statistics.start(now)
        self._n_running += 1
        turn = self._quantum if self._random is None else self._random.randint(1, self._quantum)
        node.deadline = now + turn
        return node

    def _chosen(self, worker: int) -> Task | None:
        """What the scheduler says; a scheduler that fails ends the run, and workers leave."""
        mine = [node for node in self._ready if node.preferred == worker] if self.pinned else None
        ready, name = mine or self._ready, type(self._scheduler).__name__
        try:
            node = self._scheduler.choose(ready, worker, self.now())
            if node in self._ready:
                return node
            told = f"gave {node!r:.80}, which is none of the nodes that are ready"
        except Exception as cause:
            told = describe_cause(cause)
        failure = EngineError(
            f"the scheduler {name} failed", detail=told, hint="choose(ready, worker, now) gives one of ready"
        )
        self._failures.append(((0, 0), failure))
        self._break_off()
        return None

    def suspend(self, node: Task, state: str) -> None:
        """A turn has ended and the node is to be in this state; it is ready if it could go on already."""
        with self.lock:
            self._n_running -= 1
            node.statistics.stop(self.now(), state)
            if state is COMPLETED:
                self._n_live -= 1
                if not self._n_live:
                    self._wake_all()
            elif state is READY:
                self._make_ready(node)
            elif node.can_run():
                node.statistics.wake(self.now())
                self._make_ready(node)
            if not self._ready and not self._n_running and self._n_live:
                self._relieve()

    def borrow(self, node: Task) -> bool:
        """Let a node that waits for rows be worked for by a thread that has some; gives whether it may."""
        statistics = node.statistics
        if not self.allows_borrowing or node.dedicated or statistics.state is not READ_BLOCKED:
            return False
        if self._random is not None and self._random.random() < 0.5:
            return False
        with self.lock:
            if statistics.state is not READ_BLOCKED or node.can_run() or not node.has_room():
                return False
            statistics.wake(self.now())
            statistics.start(self.now())
            self._n_running += 1
            return True

    def release(self, node: Task, worked: int) -> None:
        """The node was worked for, for so long, and waits again."""
        node.statistics.exclude_idle(self.now(), worked)
        self.suspend(node, READ_BLOCKED)

    def fail_task(self, node: Task, failure: BaseException) -> None:
        """A node raised, and that was its end."""
        self.record_failure(node, failure)
        node.complete(failed=True)
        self.suspend(node, COMPLETED)

    def record_failure(self, node: Task, failure: BaseException) -> None:
        """A node raised: the run ends, after what came before the failure has been carried through."""
        with self.lock:
            self._failures.append(((node.round, node.number), failure))
        self.on_failure(node, failure)

    def wake_reader(self, node: Task) -> None:
        """Something was put into a channel that the node may wait for (Algorithm 7)."""
        self._look(node, READ_BLOCKED)

    def wake_writer(self, node: Task) -> None:
        """Something was taken from a channel that the node may wait to write to (Algorithm 8)."""
        self._look(node, WRITE_BLOCKED)

    def _look(self, node: Task, state: str) -> None:
        with self.lock:
            if node.statistics.state is state and node.can_run():
                node.statistics.wake(self.now())
                self._make_ready(node)

    def _make_ready(self, node: Task) -> None:
        if node.dedicated:
            node.woken.notify()
        else:
            self._ready.append(node)
            self.changed.notify()

    def _relieve(self) -> None:
        """Nothing can go on: give room where the least is, unless the run only waits for more input."""
        if any(node.statistics.state is READY for node in self.tasks):  # one with a thread of its own
            return
        blocked = [node for node in self.tasks if node.statistics.state is WRITE_BLOCKED]
        full = [channel for node in blocked for channel in node.full()]
        if full:
            channel = min(full, key=lambda each: each.capacity)
            channel.capacity += 1
            channel.max_rows = float("inf")
            self._wake_writer(channel.writer)
        elif not self.may_starve:
            self._failures.append(((0, 0), _stuck(self.tasks)))
            self._break_off()

    def _break_off(self) -> None:
        self.aborted = True
        self._wake_all()

    def _wake_all(self) -> None:
        self.changed.notify_all()
        for node in self.tasks:
            node.woken.notify_all()

    def _wake_writer(self, node: Task) -> None:
        if node.can_run():
            node.statistics.wake(self.now())
            self._make_ready(node)
        else:
            self._relieve()


def _stuck(nodes: list[Task]) -> EngineError:
    waiting = [f"{n.statistics.step} ({n.statistics.state})" for n in nodes]
    return EngineError("no step can go on, and none has ended", detail=f"steps: {', '.join(waiting)}")
