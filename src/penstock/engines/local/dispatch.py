"""The dispatcher: states of tasks, and the base algorithms of scheduling (C-Stream, 3.2, algorithms 4 to 8).

A task is ready, running, blocked on reading or writing, or completed. Channels have no locks, so wake-ups
rest on one rule. A task that blocks sets its state first and then looks again whether it could go on; whoever
writes or reads a channel does so first and then looks at the state of the other side. One of the two always
sees the other. Unlike in the paper's Algorithm 4, a closed port alone does not end a wait: closing is a
message like any other.

If nothing is ready and nothing runs, tasks wait for room that only they themselves could make (a process
operator that pairs unequal branches of one stream, say). Then the smallest full channel gets room for more,
as in Parks' bounded scheduling of process networks: a run stays in bounds if it can.

Worker threads ask for a task, run it for a quantum, and ask again; their number can change while they run. A
task with a thread of its own (`dedicated`, or every task with `threads="per-task"`) is run by nobody else, so
it may block. Workers can be pinned to cores: with a thread per task in the order of a depth-first visit of
the graph (WindFlow, 5.2), so that neighbours are near.

The thread of a source that waits for rows may run the tasks that it wakes: `InlineTasks` in
`direct_call.py`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from penstock.connect.read_claims import AbandonedRead
from penstock.engines.local.metrics.statistics import COMPLETED, READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.schedulers import Scheduler
from penstock.errors import EngineError, describe_cause

if TYPE_CHECKING:
    from penstock.engines.local.tasks.task import Task


Failure = tuple[tuple[int, int], BaseException]
"""The round and the task that failed, by which failures are ordered, and the error."""


class Dispatcher:
    """The tasks of a run, their states, and which of them run next.

    now      nanoseconds, or steps of a simulated run
    quantum  how long a task may run before others get the worker
    random   with it, quanta have random lengths between 1 and `quantum`: simulated runs

    Invariant: `lock` guards the ready list, the counters and every change of a task's state. Channels read
    states without it, and wake a task only after they have looked again under it.
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
        self.pinned = False  # workers take the tasks that prefer them first
        self.allows_borrowing = True  # a producer's thread may run a task that waits for its rows
        self.may_starve = False  # a harness pushes rows: having nothing to do is no fault
        self.on_failure: Callable[[Task, BaseException], None] = lambda task, failure: None
        self.is_over = False  # all tasks have completed, or the run was aborted
        self.woken_inline: dict[int, deque[Task]] = {}  # thread -> tasks that it has woken and runs itself

    def begin(self, tasks: list[Task]) -> None:
        """Make all tasks ready."""
        self.tasks, self._n_live = tasks, len(tasks)
        for task in tasks:
            task.woken = threading.Condition(self.lock)
            task.statistics.since = self.now()
            if not task.dedicated:
                self._ready.append(task)

    @property
    def failure(self) -> BaseException | None:
        """Return the error that stopped the run: of several, that of the earliest round and task."""
        return min(self._failures, key=lambda failure: failure[0])[1] if self._failures else None

    def abort(self) -> None:
        """End the run at once: workers leave after their current quantum."""
        with self.lock:
            self._end()

    def next_task(self, worker: int, *, only: Task | None = None) -> Task | None:
        """Return the next task to run, chosen by the scheduler, or `only` that one; None if none is ready.

        The caller holds the lock. A scheduler that fails aborts the run.
        """
        if only is not None:
            if only.statistics.state is not READY:
                return None
            task = only
        elif self._ready:
            preferred = [task for task in self._ready if task.preferred == worker] if self.pinned else None
            detail = None
            try:
                task = self._scheduler.choose(preferred or self._ready, worker, self.now())
                if task not in self._ready:
                    detail = f"gave {task!r:.80}, which is none of the tasks that are ready"
            except Exception as cause:
                detail = describe_cause(cause)
            if detail is not None:
                failure = EngineError(
                    f"the scheduler {type(self._scheduler).__name__} failed",
                    detail=detail,
                    hint="choose(ready, worker, now) gives one of ready",
                )
                self._failures.append(((0, 0), failure))
                self._end()
                return None
            self._ready.remove(task)
        else:
            return None
        now = self.now()
        task.statistics.start(now)
        self._n_running += 1
        task.deadline = now + (
            self._quantum if self._random is None else self._random.randint(1, self._quantum)
        )
        return task

    def run_woken(self, woken: deque[Task], until: int) -> None:
        """Run the tasks that this thread has woken, and those that they wake; none begins after `until`."""
        while woken and not self.is_over and self.now() <= until:
            with self.lock:
                task = self.next_task(0, only=woken.popleft())
            assert task is not None, "a task that was woken is ready"
            run_task(self, task)

    def release_woken(self, woken: deque[Task]) -> None:
        """Let workers run the tasks that this thread has woken and not run."""
        with self.lock:
            while woken:
                self._ready.append(woken.popleft())
                self.changed.notify()

    def suspend(self, task: Task, state: str) -> None:
        """End a quantum: the task goes into this state, or is ready if it can go on already."""
        with self.lock:
            self._n_running -= 1
            # Invariant: the state is set before `can_run` looks at the channels (see the module docstring).
            task.statistics.stop(self.now(), state)
            if state is COMPLETED:
                self._n_live -= 1
                if not self._n_live:
                    self._end()
            elif state is READY:
                self._make_ready(task)
            elif task.can_run():
                task.statistics.wake(self.now())
                self._make_ready(task)
            if not self._ready and not self._n_running and self._n_live:
                self._resolve_deadlock()

    def borrow(self, task: Task) -> bool:
        """Take a task that waits for rows, to run it in the producer's thread; return whether it may."""
        statistics = task.statistics
        if not self.allows_borrowing or task.dedicated or statistics.state is not READ_BLOCKED:
            return False
        if self._random is not None and self._random.random() < 0.5:
            return False
        with self.lock:
            # Why look again: a worker may have taken the task since the look without the lock above.
            if statistics.state is not READ_BLOCKED or task.can_run() or not task.has_room():
                return False
            statistics.wake(self.now())
            statistics.start(self.now())
            self._n_running += 1
            return True

    def release(self, task: Task, worked_ns: int) -> None:
        """Return a borrowed task, which has worked for so long and waits for rows again."""
        task.statistics.exclude_idle(self.now(), worked_ns)
        self.suspend(task, READ_BLOCKED)

    def fail_task(self, task: Task, failure: BaseException) -> None:
        """End a task that raised."""
        self.record_failure(task, failure)
        task.complete(failed=True)
        self.suspend(task, COMPLETED)

    def record_failure(self, task: Task, failure: BaseException) -> None:
        """Let the run fail, after the rounds before the failure have been completed."""
        with self.lock:
            self._failures.append(((task.round, task.number), failure))
        self.on_failure(task, failure)

    def wake(self, task: Task, blocked: str) -> None:
        """Wake a task that is blocked on a channel which was just written or read (Algorithms 7 and 8)."""
        with self.lock:
            # Why both: the state was seen without the lock, and others may have emptied or filled the
            # channel.
            if task.statistics.state is blocked and task.can_run():
                task.statistics.wake(self.now())
                self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        inline = self.woken_inline.get(threading.get_ident()) if self.woken_inline else None
        if task.dedicated:
            task.woken.notify()
        elif inline is not None:
            inline.append(task)
        else:
            self._ready.append(task)
            self.changed.notify()

    def _resolve_deadlock(self) -> None:
        """Give room to the smallest full channels until a task can run; fail the run if there are none."""
        if any(task.statistics.state is READY for task in self.tasks):  # one with a thread of its own
            return
        blocked = [task for task in self.tasks if task.statistics.state is WRITE_BLOCKED]
        while full := [channel for task in blocked for channel in task.full()]:
            channel = min(full, key=lambda channel: channel.capacity)
            channel.capacity += 1
            channel.max_rows = float("inf")
            if channel.writer.can_run():
                channel.writer.statistics.wake(self.now())
                self._make_ready(channel.writer)
                return
        if not self.may_starve:
            states = [f"{task.statistics.step} ({task.statistics.state})" for task in self.tasks]
            failure = EngineError(
                "no step can go on, and none has ended", detail=f"steps: {', '.join(states)}"
            )
            self._failures.append(((0, 0), failure))
            self._end()

    def _end(self) -> None:
        """Let all workers leave."""
        self.is_over = True
        self.changed.notify_all()
        for task in self.tasks:
            task.woken.notify_all()


_ABANDONED_POLL_S = 0.01
"""Seconds between looks whether a task with a thread of its own was abandoned."""
SPINS = 50
"""How often an idle worker looks for work before it sleeps, with channels="auto"."""


class ThreadPool:
    """The threads of a run.

    wait_mode  how an idle worker waits: "blocking" sleeps, "spinning" looks again and again, "auto" first
               spins and then sleeps
    pinning    keep threads on cores
    n_threads  the number of workers that share tasks
    """

    def __init__(self, dispatcher: Dispatcher, *, wait_mode: str = "auto", pinning: bool = False) -> None:
        self._dispatcher = dispatcher
        self._spins = {"blocking": 0, "spinning": 2**62, "auto": SPINS}[wait_mode]
        # Why: a source waits for room, and while it looks for some it keeps those from the interpreter that
        # could make it (`python -m bench join`, latency).
        self._source_spins = 0 if wait_mode == "auto" else self._spins
        self._cores = sorted(os.sched_getaffinity(0)) if pinning and hasattr(os, "sched_setaffinity") else []
        self._threads: list[threading.Thread] = []
        self._started: set[threading.Thread] = set()
        self._owners: dict[threading.Thread, Task] = {}
        self.n_threads = self._n_workers = 0

    def set_threads(self, n: int) -> None:
        """Change the number of workers; surplus ones leave after their current quantum."""
        with self._dispatcher.lock:
            self.n_threads = n
            new = range(self._n_workers, n)
            self._n_workers = max(self._n_workers, n)
            self._dispatcher.changed.notify_all()
        for number in new:
            self._start(f"penstock-{number}", number, None)

    def dedicate(self, tasks: list[Task]) -> None:
        """Start a thread for each of these tasks."""
        for number, task in enumerate(tasks):
            self._start(f"penstock-{task.statistics.step}-{task.replica}", number, task)

    def owns(self, thread: threading.Thread) -> bool:
        """Return whether a thread belongs to the pool."""
        return thread in self._started

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all threads to leave; return whether they have."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            task = self._owners.get(thread)
            while thread.is_alive() and (task is None or not task.abandoned):
                left = max(0.0, until - time.monotonic())
                if not left:
                    return False
                # Why in short waits: the thread of an abandoned task may never leave.
                thread.join(min(left, threading.TIMEOUT_MAX if task is None else _ABANDONED_POLL_S))
            if task is not None and task.abandoned:
                thread.join(_ABANDONED_POLL_S)
        return True

    def _start(self, name: str, number: int, only: Task | None) -> None:
        thread = threading.Thread(target=self._work, args=(number, only), name=name, daemon=True)
        if only is not None:
            self._owners[thread] = only
        thread.start()
        self._threads.append(thread)  # after the start: another thread may be joining all of these

    def _work(self, worker: int, only: Task | None) -> None:
        """Run tasks, or only this one, until the run is over or the worker is not wanted any more."""
        self._started.add(threading.current_thread())
        if self._cores:
            os.sched_setaffinity(0, {self._cores[worker % len(self._cores)]})
        is_source = only is not None and not only.statistics.inputs
        dispatcher, spins_before = self._dispatcher, self._source_spins if is_source else self._spins
        spins = spins_before
        while True:
            with dispatcher.lock:
                if dispatcher.is_over or (only is None and worker >= self.n_threads):
                    self._n_workers -= only is None
                    return
                task = dispatcher.next_task(worker, only=only)
                if task is None and only is not None and only.statistics.state is COMPLETED:
                    return
                if task is None and spins <= 0:
                    # Invariant: the lock is held since `next_task` found nothing, so no wake-up is missed.
                    (dispatcher.changed if only is None else only.woken).wait()
                    spins = spins_before
            if task is None:
                spins -= 1
                time.sleep(0)
            else:
                run_task(dispatcher, task)
                spins = spins_before


@contextmanager
def call_every(seconds: float, call: Callable[[], object], name: str) -> Iterator[None]:
    """Call a function every so many seconds, in a thread beside the block."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_task(dispatcher: Dispatcher, task: Task) -> None:
    """Run a task until it yields, ends or fails."""
    try:
        state = next(task.quanta, COMPLETED)
        if state is COMPLETED:
            task.complete(failed=False)
    except AbandonedRead:  # the timer has ended the task
        return
    except BaseException as failure:
        dispatcher.fail_task(task, failure)
    else:
        dispatcher.suspend(task, state)


def depth_first_order(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks in the order of a depth-first visit from the sources."""
    visited: dict[int, Task] = {}
    stack = [task for task in reversed(tasks) if not task.statistics.inputs]
    while stack:
        task = stack.pop()
        if task.number not in visited:
            visited[task.number] = task
            stack += [channel.reader for channel in reversed(task.outs)]
    return list(visited.values())


def assign_preferred_workers(tasks: Sequence[Task], n_workers: int) -> None:
    """Give each task a worker that takes it first: neighbours the same one, and each about as many."""
    for position, task in enumerate(tasks):
        task.preferred = position * n_workers // len(tasks)
