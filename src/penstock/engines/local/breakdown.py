"""Where the time of nodes goes: into what steps are there for, or into carrying rows (WindFlow, 5.4).

Only for runs that are measured: then the calls that do a step's work are put into a stop-watch, once per
batch. In all others nothing here is ever called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from penstock.engines.local.latency import Latencies
from penstock.engines.local.network import Network, seats_of
from penstock.engines.local.seats import Seat
from penstock.engines.measured import Measured

_GIVES = ("made", "on_batch", "on_watermark", "drain")
"""Calls of a stage that give what they made one after the other: only its own share is its work."""
_DOES = ("at_once", "few_rows", "next", "write_batches", "resume")
"""Calls that are work from beginning to end, of stages, readers, writers and own loops."""


class Watch:
    """The stop-watch of one worker: calls inside a call are not counted twice."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now, self._runs = now, False
        self.ns = self.held_nbytes = 0

    def on(self, worker: Any) -> None:
        """Measure the calls of a stage, a reader, a writer or an own loop."""
        self._weigh = partial(getattr, worker, "nbytes", 0)
        for names, timed in ((_GIVES, self._giving), (_DOES, self._doing)):
            for name in names:
                call = getattr(worker, name, None)
                if call is not None:
                    setattr(worker, name, timed(call))

    def _doing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            if self._runs:
                return call(*given)
            self._runs, began = True, self._now()
            try:
                return call(*given)
            finally:
                self._runs = False
                self.ns += self._now() - began

        return timed

    def _giving(self, call: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        begun = self._doing(lambda *given: iter(call(*given)))
        following = self._doing(next)

        def timed(*given: Any) -> Iterator[Any]:
            made = begun(*given)
            while (each := following(made, None)) is not None:
                yield each
            self.held_nbytes = max(self.held_nbytes, self._weigh())

        return timed


class Breakdown:
    """The stop-watches of a run: one per stage, reader, writer and own loop."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._watches: dict[int, tuple[Any, Watch]] = {}

    def watch(self, worker: Any) -> None:
        """Measure what a worker does, from before anybody calls it."""
        found = Watch(self._now)
        found.on(worker)
        self._watches[id(worker)] = worker, found

    def measured(self, network: Network, latencies: Latencies) -> Measured:
        """What has been measured so far."""
        user = {step.name: 0 for step in network.plan}
        system, held = dict(user), dict(user)
        for node in network.nodes:
            own = [(seat.step.name, self._ns(worker)) for seat in seats_of(node) for worker in _of(seat)]
            own.append((node.steps[0].name, self._ns(getattr(node, "loop", None))))
            for step, ns in own:
                user[step] += ns
            for seat in seats_of(node):
                held[seat.step.name] += sum(self._held(worker) for worker in _of(seat))
            rest = node.statistics.running_until(self._now()) - sum(ns for _, ns in own)
            system[node.steps[0].name] += max(0, rest)
        user_us, system_us = ({step: ns // 1_000 for step, ns in each.items()} for each in (user, system))
        state = {step: most for step, most in held.items() if most}
        return Measured(latencies.by_sink(), user_us, system_us, state)

    def _ns(self, worker: Any) -> int:
        found = self._watches.get(id(worker))
        return 0 if found is None else found[1].ns

    def _held(self, worker: Any) -> int:
        found = self._watches.get(id(worker))
        return 0 if found is None else found[1].held_nbytes


def _of(seat: Seat) -> Iterator[Any]:
    """Whoever does the work of a seat."""
    return (getattr(seat, name) for name in ("stage", "reading", "writing") if hasattr(seat, name))
