"""The output of writers that show a batch in one call: its rows are held back until it is committed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.connect.conversion import concat_batches


class StagedOutput:
    """Calls `show` with a batch's number and all its rows when it is committed, unless it has none.

    Invariant: batches commit in rising order, so the last number says which have been shown.
    """

    def __init__(
        self,
        show: Callable[[int, pa.RecordBatch], None],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._show, self._on_close = show, on_close
        self._staged: dict[int, list[pa.RecordBatch]] = {}
        self._last_shown = -1

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Holds the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def commit(self, batch: int) -> None:
        """Shows them, once."""
        staged = self._staged.pop(batch, None)
        if staged and batch > self._last_shown:
            self._show(batch, concat_batches(staged, staged[0].schema))
            self._last_shown = batch

    def close(self) -> None:
        """Drops what was not committed."""
        self._staged.clear()
        self._on_close()
