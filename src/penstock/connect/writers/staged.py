"""Rows of a batch held back until it is committed, for writers that show them by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.connect.columns import joined


class StagedOutput:
    """Calls `show` with a batch's number and all its rows when it is committed, unless it has none.

    Batches commit in rising order, so the last number says which have been shown.
    """

    def __init__(
        self,
        show: Callable[[int, pa.RecordBatch], None],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._show, self._on_close = show, on_close
        self._staged: dict[int, list[pa.RecordBatch]] = {}
        self._last = -1

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Hold the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def commit(self, batch: int) -> None:
        """Show them, once."""
        staged = self._staged.pop(batch, None)
        if staged and batch > self._last:
            self._show(batch, staged[0] if len(staged) == 1 else joined(staged, staged[0].schema))
            self._last = batch

    def close(self) -> None:
        """Drop what was not committed."""
        self._staged.clear()
        self._on_close()
