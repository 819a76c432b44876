"""Large parts of expressions as columns of their own, so that what is used twice is computed once.

A Column is a tree, and a rule that needs its input twice doubles it: four such rules inside each other would
make a tree that Spark plans for minutes. Spark itself puts a column back in place where it is used only once.
"""

from __future__ import annotations

from typing import Any

from penstock.engines.spark.expressions.leaves import column
from penstock.engines.spark.expressions.lowered import Lowered

PREFIX = "__penstock_part_"


class Parts:
    """Rows with the kept parts beside their columns; select from `rows` what is wanted in the end."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._count = 0

    def kept(self, part: Lowered) -> Lowered:
        """The part as a column of the rows, and its failure as another."""
        name = f"{PREFIX}{self._count}"
        self._count += 1
        made = {name: part.value}
        if part.failed is not None:
            made[f"{name}_failed"] = part.failed
        self.rows = self.rows.withColumns(made)
        failed = None if part.failed is None else column(f"{name}_failed")
        return Lowered(column(name), failed, part.constant, 1, int(failed is not None))
