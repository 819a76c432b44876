"""Stages whose work is done in a worker process; rows, accounts and errors are the same as in a thread.

`AdaptiveStage` starts in the thread and moves to the worker process if that pays, measured on the batches of
the run. Processor time of the thread is what counts, because a function that waits scales on threads. The
round trip to the worker is measured with the same batch. Whichever replica finds out first decides for all of
them; both ways give the same rows, so nobody can tell from the results.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.accounts import Accounts
from penstock.engines.local.processes.worker import Message, Worker
from penstock.engines.wire import failure_from_dict, pack_batch, unpack_batch
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import SavedBytes, StageContext, StatelessStage
from penstock.timing.windows import BEFORE_ALL

Outputs = Iterator[tuple[str, Batch]]

N_SLOW = 3
"""Batches in a row that must all be slow."""
MIN_RATIO = 4
"""Times as long as the round trip that a slow batch takes."""
MIN_ROUND_TRIP_NS = 200_000
"""Assumed cost of a round trip at least, so that it need not be measured for small batches."""


class RemoteCalls:
    """Calls of the stage of one step, which is in a worker process.

    index  its position among the steps that the worker hosts
    """

    def __init__(self, worker: Worker, index: int, step: Step, site: StageContext) -> None:
        self._worker, self._index, self._step = worker, index, step
        self.up, self.site, self._fresh = step.up, site, True

    def call(self, method: str, batch: Batch | None = None, watermark: float | None = None) -> Outputs:
        """Call a method of the stage and yield its results; then raise its error, if it failed."""
        bodies = [] if batch is None else [pack_batch(batch)]
        reply, results = self.send({"call": method, "watermark": watermark}, bodies)
        self.site.accounts.add(Accounts(**reply.get("counted", {})))
        outputs = self._step.outputs
        for port, body in zip(reply.get("ports", ()), results, strict=False):
            yield port, unpack_batch(body, outputs[port].schema if port else self.up.schema)
        self.raise_failure(reply)

    def send(self, message: Message, bodies: Sequence[Any] = ()) -> tuple[Message, list[bytes]]:
        """Send a call, and return the reply."""
        message |= {"index": self._index, "fresh": self._fresh}
        self._fresh = False
        return self._worker.call(self._step, message, bodies)

    def raise_failure(self, reply: Message) -> None:
        """Raise the error of a call that failed."""
        if "failure" in reply:
            raise failure_from_dict(reply["failure"]).at(self._step.name, self._step.where)


class RemoteStateless(RemoteCalls, StatelessStage):
    """A step without state: every batch goes to the worker and comes back."""

    def process(self, batch: Batch) -> Outputs:
        """Implement `StatelessStage.process`."""
        return self.call("process", batch)

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return ["runs in a worker process"]


class RemoteStage(RemoteCalls):
    """A step with state, which the worker keeps."""

    _watermark = BEFORE_ALL

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Implement `Stage.on_batch`."""
        self._watermark = max(self._watermark, watermark)
        return self.call("on_batch", batch, watermark)

    def on_watermark(self, watermark: float) -> Outputs:
        """Implement `Stage.on_watermark`; a watermark that has not moved is not worth the round trip."""
        if watermark <= self._watermark:
            return iter(())
        self._watermark = watermark
        return self.call("on_watermark", watermark=watermark)

    def drain(self) -> Outputs:
        """Implement `Stage.drain`."""
        return self.call("drain")

    def snapshot(self) -> Mapping[int, bytes]:
        """Implement `Stage.snapshot`."""
        reply, pieces = self.send({"call": "snapshot"})
        self.raise_failure(reply)
        return dict(zip(reply["buckets"], pieces, strict=True))

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Implement `Stage.restore`."""
        self._watermark = BEFORE_ALL
        reply, _ = self.send({"call": "restore", "buckets": list(saved)}, list(saved.values()))
        self.raise_failure(reply)


class WorkerChoice:
    """Threads or processes, for all replicas of a step.

    report  called once, with the reason, when processes are chosen
    now_ns  time in nanoseconds
    """

    def __init__(
        self, report: Callable[[str], None], *, now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._report, self._now_ns = report, now_ns
        self.processes = False
        self._lock = threading.Lock()
        self._recent: deque[int] = deque(maxlen=N_SLOW)
        self._round_trip_ns = MIN_ROUND_TRIP_NS

    def add(self, cpu_ns: int, echo: Callable[[], object]) -> None:
        """Add the processor time of a batch in a thread; `echo` makes a round trip with the batch."""
        self._recent.append(cpu_ns)
        if len(self._recent) < N_SLOW or min(self._recent) < MIN_RATIO * self._round_trip_ns:
            return
        echo()  # the first time the worker warms up
        before = self._now_ns()
        echo()
        self._round_trip_ns = max(MIN_ROUND_TRIP_NS, self._now_ns() - before)
        if min(self._recent) >= MIN_RATIO * self._round_trip_ns:
            with self._lock:
                first, self.processes = not self.processes, True
            if first:
                took, way = min(self._recent) / 1e6, self._round_trip_ns / 1e6
                self._report(
                    f"processes: a batch takes {took:.1f} ms of plain Python, "
                    f"the way there and back {way:.1f} ms"
                )


class AdaptiveStage(StatelessStage):
    """One replica of a step: runs in the thread until processes are chosen."""

    def __init__(self, local: StatelessStage, remote: RemoteStateless, choice: WorkerChoice) -> None:
        super().__init__(local.up, local.site)
        self._local, self._remote, self._choice = local, remote, choice

    def process(self, batch: Batch) -> Outputs:
        """Implement `StatelessStage.process`."""
        if self._choice.processes:
            return self._remote.process(batch)
        before = time.thread_time_ns()
        outputs = list(self._local.process(batch))
        self._choice.add(time.thread_time_ns() - before, lambda: deque(self._remote.call("echo", batch), 0))
        return iter(outputs)

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`: as in the thread, at first."""
        return self._local.explain()
