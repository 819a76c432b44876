"""What the driver sends to the legs: the rows of its sources, dealt to parts and packed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.spark.ahead import Ready
from penstock.engines.spark.legs import DRIVER, Legs
from penstock.engines.spark.wire import Dealing, Sent, packed, pieces
from penstock.plan.plan import Plan


class Sending:
    """The edges out of the sources of a plan."""

    def __init__(self, plan: Plan, legs: Legs, n_parts: int) -> None:
        sources = {step.name for step in plan.sources}
        self._n_parts = n_parts
        self._edges = [edge for edge in legs.edges if edge.ref.step in sources and edge.leg != DRIVER]
        self._dealings = {
            edge.number: Dealing(edge.key, plan[edge.ref.step].outputs[edge.ref.port].schema, n_parts)
            for edge in self._edges
        }

    def sent(self, ready: Sequence[Ready]) -> list[Sent]:
        """What the sources gave in these rounds, for the legs that read it."""
        return [
            Sent(edge.leg, edge.number, each.plan.number, part, body)
            for each in ready
            for ref, batch in each.batches
            for edge in self._edges
            if edge.ref == ref
            for piece in pieces(batch, self._n_parts if edge.key is None else 1)
            for part, rows in self._dealings[edge.number].deal(piece, 0)
            for body in packed(rows)
        ]
