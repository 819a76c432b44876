"""Worker threads: each asks for a task, runs it for a quantum, and asks again.

The number of workers can change while they run. A task with a thread of its own (`dedicated`, or every task
with `threads="per-task"`) is run by nobody else, so it may block. Workers can be pinned to cores: with
a thread per task in the order of a depth-first visit of the graph (WindFlow, 5.2), so that neighbours are
near.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from penstock.engines.local.metrics.statistics import COMPLETED
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.task import Task

SPINS = 50
"""How often an idle worker looks for work before it sleeps, with channels="auto"."""


class ThreadPool:
    """The threads of a run.

    wait_mode  how an idle worker waits: "blocking" sleeps, "spinning" looks again and again, "auto" first
    spins
               and then sleeps
    pinning    keep threads on cores
    """

    def __init__(self, dispatcher: Dispatcher, *, wait_mode: str = "auto", pinning: bool = False) -> None:
        self._dispatcher = dispatcher
        self._spins = {"blocking": 0, "spinning": 2**62, "auto": SPINS}[wait_mode]
        self._cores = sorted(os.sched_getaffinity(0)) if pinning and hasattr(os, "sched_setaffinity") else []
        self._threads: list[threading.Thread] = []
        self._started: set[threading.Thread] = set()
        self._n_wanted = 0
        self._n_workers = 0

    @property
    def n_threads(self) -> int:
        """Returns the number of workers that share tasks."""
        return self._n_wanted

    def set_threads(self, n: int) -> None:
        """Changes the number of workers; surplus ones leave after their current quantum."""
        with self._dispatcher.lock:
            self._n_wanted = n
            new = range(self._n_workers, n)
            self._n_workers = max(self._n_workers, n)
            self._dispatcher.changed.notify_all()
        for number in new:
            self._start(f"penstock-{number}", number, None)

    def dedicate(self, tasks: list[Task]) -> None:
        """Starts a thread for each of these tasks."""
        for number, task in enumerate(tasks):
            self._start(f"penstock-{task.statistics.step}-{task.replica}", number, task)

    def owns(self, thread: threading.Thread) -> bool:
        """Returns whether a thread belongs to the pool."""
        return thread in self._started

    def join(self, timeout: float | None = None) -> bool:
        """Waits for all threads to leave; returns whether they have."""
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self, name: str, number: int, only: Task | None) -> None:
        thread = threading.Thread(target=self._work, args=(number, only), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)  # after the start: another thread may be joining all of these

    def _work(self, worker: int, only: Task | None) -> None:
        """Runs tasks, or only this one, until the run is over or the worker is not wanted any more."""
        self._started.add(threading.current_thread())
        if self._cores:
            os.sched_setaffinity(0, {self._cores[worker % len(self._cores)]})
        dispatcher, spins = self._dispatcher, self._spins
        while True:
            with dispatcher.lock:
                if dispatcher.is_over or (only is None and worker >= self._n_wanted):
                    self._n_workers -= only is None
                    return
                task = dispatcher.next_task(worker, only=only)
                if task is None and only is not None and only.statistics.state is COMPLETED:
                    return
                if task is None and spins <= 0:
                    # Invariant: the lock is held since `next_task` found nothing, so no wake-up is missed.
                    (dispatcher.changed if only is None else only.woken).wait()
                    spins = self._spins
            if task is None:
                spins -= 1
                time.sleep(0)
            else:
                run_task(dispatcher, task)
                spins = self._spins


def run_task(dispatcher: Dispatcher, task: Task) -> None:
    """Runs a task until it yields, ends or fails."""
    try:
        state = next(task.quanta, COMPLETED)
        if state is COMPLETED:
            task.complete(failed=False)
    except BaseException as failure:
        dispatcher.fail_task(task, failure)
    else:
        dispatcher.suspend(task, state)


def depth_first_order(tasks: Sequence[Task]) -> list[Task]:
    """Returns the tasks in the order of a depth-first visit from the sources."""
    visited: dict[int, Task] = {}
    stack = [task for task in reversed(tasks) if not task.statistics.inputs]
    while stack:
        task = stack.pop()
        if task.number not in visited:
            visited[task.number] = task
            stack += [channel.reader for channel in reversed(task.outs)]
    return list(visited.values())


def assign_preferred_workers(tasks: Sequence[Task], n_workers: int) -> None:
    """Gives each task a worker that takes it first: neighbours the same one, and each about as many."""
    for position, task in enumerate(tasks):
        task.preferred = position * n_workers // len(tasks)
