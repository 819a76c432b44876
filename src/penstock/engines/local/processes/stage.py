"""Stages whose work is done in a worker process; rows, accounts and errors are the same as here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.accounts import Accounts
from penstock.engines.local.processes.transport import Message
from penstock.engines.local.processes.worker import Worker
from penstock.engines.wire import failure_from_dict, pack_batch, unpack_batch
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site
from penstock.stages.stateless import StatelessStage
from penstock.timing.watermark import BEFORE_ALL

Out = Iterator[tuple[str, Batch]]


class RemoteStep:
    """One step in a worker process.

    seat  its place among the steps that the worker hosts
    """

    def __init__(self, worker: Worker, seat: int, step: Step, site: Site) -> None:
        self._worker, self._seat, self.step, self.site = worker, seat, step, site
        self._fresh = True

    def rows(self, call: str, batch: Batch | None = None, watermark: float | None = None) -> Out:
        """What a call of the stage gives."""
        bodies = [] if batch is None else [pack_batch(batch)]
        told, given = self._asked({"call": call, "watermark": watermark}, bodies)
        self._count(told)
        outputs = self.step.outputs
        for port, body in zip(told.get("ports", ()), given, strict=False):
            yield port, unpack_batch(body, outputs[port].schema if port else self.step.up.schema)
        _raise_failure(told, self.step)

    def snapshot(self) -> dict[int, bytes]:
        """The state that it has there."""
        told, given = self._asked({"call": "snapshot"})
        _raise_failure(told, self.step)
        return dict(zip(told["buckets"], given, strict=True))

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Go back to a snapshot."""
        told, _ = self._asked({"call": "restore", "buckets": list(saved)}, list(saved.values()))
        _raise_failure(told, self.step)

    def _asked(self, message: Message, bodies: Sequence[Any] = ()) -> tuple[Message, list[bytes]]:
        message |= {"seat": self._seat, "fresh": self._fresh}
        self._fresh = False
        return self._worker.call(self.step, message, bodies)

    def _count(self, told: Message) -> None:
        accounts = self.site.accounts
        assert isinstance(accounts, Accounts), "engines count in accounts of the plan"
        if told.get("counted"):
            accounts.add(Accounts(**told["counted"]))


def _raise_failure(told: Message, step: Step) -> None:
    if "failure" in told:
        raise failure_from_dict(told["failure"]).at(step.name, step.where)


class RemoteStateless(StatelessStage):
    """A step without state: every batch goes there and comes back."""

    def __init__(self, remote: RemoteStep) -> None:
        super().__init__(remote.step.up, remote.site)
        self._remote = remote

    def made(self, batch: Batch) -> Out:
        """What the rows became there."""
        return self._remote.rows("made", batch)

    def echo(self, batch: Batch) -> None:
        """There and back, and nothing else: what the way costs."""
        for _ in self._remote.rows("echo", batch):
            pass

    def explain(self) -> list[str]:
        """In another process."""
        return ["runs in a worker process"]


class RemoteStage:
    """A step with state, which is kept there."""

    def __init__(self, remote: RemoteStep) -> None:
        self._remote, self.site = remote, remote.site
        self._reached = BEFORE_ALL

    def on_batch(self, batch: Batch, watermark: float) -> Out:
        """Take rows in, judged by the watermark."""
        self._reached = max(self._reached, watermark)
        return self._remote.rows("on_batch", batch, watermark)

    def on_watermark(self, watermark: float) -> Out:
        """Let go what the watermark has passed; one that has not moved is not worth the way."""
        if watermark <= self._reached:
            return iter(())
        self._reached = watermark
        return self._remote.rows("on_watermark", watermark=watermark)

    def drain(self) -> Out:
        """Let go everything."""
        return self._remote.rows("drain")

    def snapshot(self) -> Mapping[int, bytes]:
        """The state per bucket."""
        return self._remote.snapshot()

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Go back to a snapshot."""
        self._reached = BEFORE_ALL
        self._remote.restore(saved)
