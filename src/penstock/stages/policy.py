"""When work is little and when it is much: the one place that chooses between two ways with one answer.

Stages can do their work at two speeds (plain Python, or loops that Numba compiles) and in two shapes (row by
row, or by columns). Loading Numba takes longer than a small program runs, and building columns takes longer
than handling a few rows, so small work goes the plain way. No result depends on the choice; `SIZES` holds
every number that decides, and tests replace it to force one way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.loops import Loop


class SizePolicy(Frozen):
    """The sizes at which stages change from one way of working to the other.

    Plain Python or compiled:
    compile_after     a store, or a user's function, runs compiled once it has done more than this much work
                      in total (rows, cells or windows): about what loading Numba costs
    loaded_work       a loop that this process has loaded already runs compiled for more than this much work
                      at once: calling it costs as much as a few rows in Python
    compiled_calls    plain rows that still go through Python although a compiled function is at hand: fewer
                      than this are done before their columns are built
    hash_batch_rows   a single batch of this many rows turns a key index from a dict into a compiled table
    hash_total_rows   so does this many rows in total
    restored_keys     keys of saved state stay in the dict up to this many: loading Numba takes as long as
                      putting some hundred thousand there (`python -m bench recovery`)

    Rows or columns:
    plain_rows        a batch of up to this many rows may stay a list of rows; waiting, more would take ten
                      times the memory of columns
    row_expressions   expression nodes times rows that are computed row by row
    buffered_batch    window stages buffer single rows from batches of up to this many rows
    buffered_rows     at most this many rows are buffered: adding as many at once costs a microsecond each
    chunk_rows        windows place this many rows and then add them one accumulator after the other, while
                      their cells are in the cache (`python -m bench windows`, several aggregates)
    sampled_rows      one row in so many is looked at where an estimate of the times to come will do
                      (`python -m bench windows`, single key)
    rows_per_slot     with fewer rows per slot in a batch, sums per slot beside the rings cost more than they
                      save (`python -m bench windows`, 500 keys and more)
    index_rows        fewer stored rows of a join are always scanned
    index_cost        comparisons per row that a join's index costs: after so many scanned ones it is built
                      (`python -m bench join`, band)
    index_share       an index is built only where one row in this many, or fewer, is looked at
    few_rows          so many new rows or pairs of a join are handled in few calls, each of which costs more
                      a row than others do with many (`python -m bench join`, latency); so many plain rows
                      have times and places that are numbers of Python (`python -m bench latency`)
    plain_pairs       so few pairs of a join leave it as plain rows, also if the rows that came were columns
    waiting_rows      new rows of a join are sorted, and their columns put together, so many at a time
    payload_rows      batches of stored rows of a join are not put together beyond this many rows: a copy
                      of so many is a pause
    compared_at_once  rows times boxes of one call, at most: all of them may be pairs
    pairs_at_once     candidate pairs that a user's function gets in one call, at most
    results_at_once   rows that leave a join in one batch, at most; new rows that may find more are joined in
                      several steps, so that memory is bounded
    loop_rows         so many new rows of a join of bands are encoded, looked up and stored in one loop
                      (`python -m bench join`, band)
    selection_share   a filter keeps its input and a selection while at least one row in this many is
                      selected; otherwise the selected rows are copied, so that little holds much in memory
    """

    compile_after: int = 10_000
    loaded_work: int = 32
    compiled_calls: int = 1024
    hash_batch_rows: int = 4096
    hash_total_rows: int = 1 << 17
    restored_keys: int = 1 << 18
    plain_rows: int = 4096
    row_expressions: int = 128
    buffered_batch: int = 16
    buffered_rows: int = 1024
    chunk_rows: int = 1 << 16
    sampled_rows: int = 64
    rows_per_slot: int = 4
    index_rows: int = 1024
    index_cost: int = 256
    index_share: int = 16
    few_rows: int = 64
    plain_pairs: int = 16
    waiting_rows: int = 1024
    payload_rows: int = 1 << 20
    compared_at_once: int = 1 << 26
    pairs_at_once: int = 1 << 16
    results_at_once: int = 1 << 16
    loop_rows: int = 4096
    selection_share: int = 16


SIZES = SizePolicy()
"""The policy in force. Read it where a choice is made, as `policy.SIZES`, so that it can be replaced."""


class JitPolicy:
    """Counts the work of one store or stage, and runs its loops at the speed that fits.

    compile_after  work after which loops run compiled, whether they are loaded or not; None for the policy
    """

    def __init__(self, compile_after: int | None = None) -> None:
        self._work = 0
        self._compile_after = SIZES.compile_after if compile_after is None else compile_after
        self._loaded_work = SIZES.loaded_work if compile_after is None else compile_after

    def __call__(self, loop: Loop, *arguments: Any, work: int | None = None) -> Any:
        """Run a loop; its work is the length of its longest one-dimensional array unless it is given."""
        if work is None:
            work = max(len(array) for array in arguments if isinstance(array, np.ndarray) and array.ndim == 1)
        self._work += work
        is_much = self._work > self._compile_after
        return loop.version(is_much, or_loaded=work > self._loaded_work)(*arguments)

    def compiles(self, work: int) -> bool:
        """Return whether a loop with this much work would run compiled."""
        return self._work + work > self._compile_after
