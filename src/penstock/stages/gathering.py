"""Single rows on their way into time windows: they wait for each other until a window could leave.

To add a row to its window takes about as long as to add a thousand. A row that comes by itself, and lies in
no window that the watermark has passed, changes nothing that anybody can see before the next window leaves,
so until then it stays the plain row that it is. Who looks at the state has the rows taken in first.

Only rows that nothing can be said about are let wait: none that is late, and none on which an expression
fails, since `.late`, `.errors` and errors are not to be late themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penstock.expr import lower_python
from penstock.expr.columns import Column
from penstock.expr.failure import RowFailure
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Plain
from penstock.stages.lifting import Lifting

MOST = 1024
"""Rows that wait at most: taking in as many at once costs each of them about a microsecond."""
FEW = 16
"""Batches of more rows than this are worth the way through columns."""


class Gathering:
    """The rows of a step that wait.

    n_rows  how many
    """

    def __init__(self, up: Stream, lifting: Lifting) -> None:
        self._schema, self.n_rows = up.schema, 0
        self._rows: list[Plain] = []
        self._times: list[int] = []
        self._orders: list[list[int]] = []
        # A fold's `lift` is the user's, and is called once for a row.
        self._any = not lifting.folds
        computed = [expr for expr in lifting.expressions if not isinstance(expr, Column)]
        self._tries = [lower_python(expr, up.schema) for expr in computed]

    @property
    def nbytes(self) -> int:
        """The memory held: what the first row takes, for every row."""
        if not self._rows:
            return 0
        values = sum(sys.getsizeof(value) for value in self._rows[0].values())
        return self.n_rows * (sys.getsizeof(self._rows[0]) + values)

    def let_wait(self, batch: Batch, since: int) -> bool:
        """Whether the rows of a batch wait now. Rows before the time `since` may be late."""
        rows = batch.plain
        if not self._any or rows is None or len(rows) > FEW or len(rows) + self.n_rows > MOST:
            return False
        times, orders = batch.plain_numbers()
        if min(times) < since or not self._can(rows):
            return False
        self._rows += rows
        self._times += times
        if not self._orders:
            self._orders = [[] for _ in orders]
        for mine, order in zip(self._orders, orders, strict=True):
            mine.extend(order)
        self.n_rows += len(rows)
        return True

    def take(self) -> Batch:
        """All of them, in the order in which they came."""
        found = Batch.of_plain(self._rows, self._schema, self._times, tuple(self._orders))
        self._rows, self._times, self._orders, self.n_rows = [], [], [], 0
        return found

    def _can(self, rows: Sequence[Plain]) -> bool:
        """Whether no expression fails on them."""
        try:
            for compute in self._tries:
                for row in rows:
                    compute(row)
        except RowFailure:
            return False
        return True
