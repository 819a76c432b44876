"""StaticJoin: look every row up in a table that is read once, before anything else."""

from __future__ import annotations

from collections.abc import Hashable

from penstock.engines.reference.node import Site
from penstock.engines.reference.stateless import PerRow
from penstock.engines.timed import TimedRow, values_of
from penstock.engines.values import key_of
from penstock.operators.op import OUT
from penstock.operators.static_join import StaticJoin


class StaticJoinNode(PerRow):
    """The table's row with the same key; null keys match nothing, NaN matches NaN, -0.0 matches 0.0."""

    def __init__(self, site: Site, op: StaticJoin) -> None:
        super().__init__(site)
        self._op = op
        self._added = [field.name for field in op.added]
        self._table: dict[tuple[Hashable, ...], dict[str, object]] = {}
        for batch in op.load().to_batches():
            for values in values_of(batch):
                self._table[key_of(values, op.columns)] = values

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The row with the table's other columns; without a match, nulls (left) or nothing (inner)."""
        key = key_of(row.values, self._op.columns)
        found = None if None in key else self._table.get(key)
        if found is None and self._op.how == "inner":
            self.accounts.unmatched += 1
            return []
        self.accounts.passed += 1
        added = {name: None if found is None else found[name] for name in self._added}
        return [(OUT, row.with_values({**row.values, **added}))]
