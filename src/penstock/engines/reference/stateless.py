"""Steps that handle each row by itself, at once, and keep its time: map, select, filter, flat_map, relay.

`batches.py` has the same steps for functions of whole batches, `state.py` those with a state per key.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from penstock.engines.reference.faults import Blame
from penstock.engines.reference.functions import Values, blame, mapping, predicate, several
from penstock.engines.reference.node import Arrived, Node, Outputs, Site
from penstock.engines.timed import TimedRow
from penstock.expr import Expr
from penstock.operators.function import Expressions, RowFunction
from penstock.operators.map import Select
from penstock.operators.op import OUT


class PerRow(Node):
    """Handles row by row; a row that fails goes the way of the step's `on_error`."""

    blame = Blame("the step")

    def round(self, arrived: Arrived) -> Outputs:
        """All rows of the round, in the order they came."""
        outputs: Outputs = {}
        for row in arrived.only:
            try:
                made = self.each(row)
            except self.blame.catches as cause:
                self.faults.row(row, self.site.step.up.schema, self.blame, cause)
                continue
            for port, new in made:
                outputs.setdefault(port, []).append(new)
        return outputs

    @abstractmethod
    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """What leaves for one row, by port; counts the row unless it raises."""


class MapNode(PerRow):
    """One row out for one row in."""

    def __init__(self, site: Site, function: Expressions | RowFunction) -> None:
        super().__init__(site)
        self.blame = blame(function)
        self._made = mapping(function, site.step.up.schema, site.step.outputs[OUT].schema)

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The new row, at the same time."""
        made = row.with_values(self._made(row.values))
        self.accounts.passed += 1
        return [(OUT, made)]


class SelectNode(MapNode):
    """A map that keeps only the columns it names."""

    def __init__(self, site: Site, op: Select) -> None:
        super().__init__(site, Expressions(op.columns))
        self._names = [name for name, _ in op.columns]

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The named columns, in that order."""
        ((port, made),) = super().each(row)
        return [(port, made.with_values({name: made.values[name] for name in self._names}))]


class FilterNode(PerRow):
    """The rows for which something is true."""

    def __init__(self, site: Site, function: Expr | RowFunction) -> None:
        super().__init__(site)
        self.blame = blame(function)
        self._holds = predicate(function, site.step.up.schema)

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The row itself, or nothing."""
        if self._holds(row.values):
            self.accounts.passed += 1
            return [(OUT, row)]
        self.accounts.filtered += 1
        return []


class FlatMapNode(PerRow):
    """None, one or several rows out for one row in; if the function fails midway, none leave."""

    def __init__(self, site: Site, function: Expressions | RowFunction) -> None:
        super().__init__(site)
        self.blame = blame(function)
        self._made: Callable[[Values], list[Values]]
        self._made = several(function, site.step.up.schema, site.step.outputs[OUT].schema)

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The new rows, at the same time, in the order they were given."""
        made = [row.child(values, index) for index, values in enumerate(self._made(row.values))]
        self.accounts.passed += 1
        return [(OUT, new) for new in made]


class RelayNode(PerRow):
    """Rows as they come."""

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The row itself."""
        self.accounts.passed += 1
        return [(OUT, row)]


class Replicas(Node):
    """Broadcast to a stateless step: every replica gets every row, so its work is done once per replica."""

    def __init__(self, site: Site, nodes: list[Node]) -> None:
        super().__init__(site)
        self._nodes = nodes
        self.replicas = len(nodes)

    def round(self, arrived: Arrived) -> Outputs:
        """What each replica gives, one after the other."""
        outputs: Outputs = {}
        for node in self._nodes:
            for port, rows in node.round(arrived).items():
                outputs.setdefault(port, []).extend(rows)
        return outputs

    def close(self) -> None:
        """Release what the replicas hold."""
        for node in self._nodes:
            node.close()
