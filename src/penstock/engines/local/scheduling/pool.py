"""Worker threads: each asks for a node, runs it until it gives way, and asks again.

The number of workers can change while they run. A node with a thread of its own (`dedicated`, or all of them
with `threads="per-node"`) is run by nobody else, so it may block. Workers can be pinned to cores; with a
thread per node in the order of a depth-first visit of the graph (WindFlow, 5.2), so that neighbours are near.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from penstock.engines.local.metrics.statistics import COMPLETED
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.task import Task

_LOOKS = 50
"""How often an idle worker looks for work before it sleeps, where it may look at all."""


class ThreadPool:
    """The threads of a run.

    waits    "blocking": an idle worker sleeps; "spinning": it looks again and again; "auto": for a while
    pinning  keep threads on cores
    """

    def __init__(self, dispatcher: Dispatcher, *, waits: str = "auto", pinning: bool = False) -> None:
        self._dispatcher = dispatcher
        self._looks = {"blocking": 0, "spinning": 2**62, "auto": _LOOKS}[waits]
        self._cores = sorted(os.sched_getaffinity(0)) if pinning and hasattr(os, "sched_setaffinity") else []
        self._threads: list[threading.Thread] = []
        self._begun: set[threading.Thread] = set()
        self._wanted = 0
        self._n_workers = 0

    @property
    def n_threads(self) -> int:
        """Workers that share nodes."""
        return self._wanted

    def set_threads(self, n: int) -> None:
        """Change the number of workers; those too many leave when their turn ends."""
        with self._dispatcher.lock:
            self._wanted = n
            new = range(self._n_workers, n)
            self._n_workers = max(self._n_workers, n)
            self._dispatcher.changed.notify_all()
        for number in new:
            self._start(f"penstock-{number}", number, None)

    def dedicate(self, nodes: list[Task]) -> None:
        """A thread for each of these nodes."""
        for number, node in enumerate(nodes):
            name = f"penstock-{node.statistics.step}-{node.replica}"
            self._start(name, number, node)

    def has(self, thread: threading.Thread) -> bool:
        """Whether it is one of these."""
        return thread in self._begun

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all threads to leave; gives whether they have."""
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self, name: str, number: int, only: Task | None) -> None:
        thread = threading.Thread(target=self._work, args=(number, only), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)  # now it can be joined: others may be doing so

    def _work(self, worker: int, only: Task | None) -> None:
        self._begun.add(threading.current_thread())
        if self._cores:
            os.sched_setaffinity(0, {self._cores[worker % len(self._cores)]})
        while (node := self._next(worker, only)) is not None:
            run_task(self._dispatcher, node)

    def _next(self, worker: int, only: Task | None) -> Task | None:
        """The next node; None when the thread is to leave."""
        dispatcher, looks = self._dispatcher, self._looks
        while True:
            with dispatcher.lock:
                if dispatcher.is_over or (only is None and worker >= self._wanted):
                    self._n_workers -= only is None
                    return None
                node = dispatcher.next_task(worker, only=only)
                if node is not None:
                    return node
                if only is not None and only.statistics.state is COMPLETED:
                    return None
                if looks <= 0:
                    (dispatcher.changed if only is None else only.woken).wait()
                    looks = self._looks
            looks -= 1
            time.sleep(0)


def run_task(dispatcher: Dispatcher, node: Task) -> None:
    """Let a node run until it gives way, ends or fails."""
    try:
        state = next(node.quanta, COMPLETED)
        if state is COMPLETED:
            node.complete(failed=False)
    except BaseException as failure:
        dispatcher.fail_task(node, failure)
    else:
        dispatcher.suspend(node, state)


def depth_first_order(nodes: Sequence[Task]) -> list[Task]:
    """The nodes in the order in which a depth-first visit from the sources meets them."""
    found: dict[int, Task] = {}
    waiting = [node for node in reversed(nodes) if not node.statistics.inputs]
    while waiting:
        node = waiting.pop()
        if node.number not in found:
            found[node.number] = node
            waiting += [channel.reader for channel in reversed(node.outs)]
    return list(found.values())


def assign_preferred_workers(nodes: Sequence[Task], n_workers: int) -> None:
    """Give each node a worker that takes it first: neighbours to one, about as many to each."""
    for place, node in enumerate(nodes):
        node.preferred = place * n_workers // len(nodes)
