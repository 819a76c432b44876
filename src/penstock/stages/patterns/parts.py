"""Parts: what one replica knows of a slice or a window, as an Arrow batch that an engine can carry.

    key_0, key_1, …   the key columns, in their types
    window            int64  the place of the window in the step; of a slice the first window that it serves
    start             int64  microseconds: where the window, or the slice, begins
    watermark         int64  microseconds: the watermark by which the rows in it were judged
    rows.0, int sum of 0.0, int sum of 0.1, …
                      the numbers of each register's cell, by its kind (`register.py`) and the place of what
                      it is of among the step's values: int64 or float64, never null

Parts of one (key, window, start) are put together by the registers' rules, in any order. A slice is part of
windows that have left and of others that have not; so a part is not put to others before all windows are gone
that had left when its rows came (`watermark`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.rules import Cells
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Ints
from penstock.stages.keys import KeySlots
from penstock.stages.register import Register
from penstock.stages.store import Left

PARTS = "parts"
"""The port on which parts leave a stage."""
_WINDOW, _START, _WATERMARK = "window", "start", "watermark"


@dataclass(frozen=True, slots=True)
class Cut:
    """Parts as arrays, all of one length.

    kinds   int64[n]  the column "window"
    slots   int64[n]  of their keys
    starts  int64[n]
    cells   one array [n, width] per register
    """

    kinds: Ints
    slots: Ints
    starts: Ints
    cells: tuple[Cells, ...]

    def where(self, kinds: Ints) -> Cut:
        """The parts of some kinds."""
        mine = np.flatnonzero(np.isin(self.kinds, kinds))
        cells = tuple(each[mine] for each in self.cells)
        return Cut(self.kinds[mine], self.slots[mine], self.starts[mine], cells)


class PartFormat:
    """The columns of the parts of one step, there and back."""

    def __init__(self, up: Stream, registers: Sequence[Register]) -> None:
        self._registers = tuple(registers)
        self.key = tuple(f"key_{place}" for place in range(len(up.key)))
        types = [up.schema.field(name).type for name in up.key]
        fields = [*zip(self.key, types, strict=True)]
        fields += [(name, pa.int64()) for name in (_WINDOW, _START, _WATERMARK)]
        for register in registers:
            type_ = pa.float64() if register.rule.floats else pa.int64()
            fields += [(name, type_) for name in _names(register)]
        self.schema = pa.schema(fields)

    def batch(self, left: Left, keys: KeySlots, watermark: int) -> Batch:
        """What leaves a replica, as parts; a part's time is where it begins."""
        judged = np.full(len(left.slots), watermark, np.int64)
        columns = [*keys.columns_of(left.slots), *map(pa.array, (left.kinds, left.starts, judged))]
        for cells in left.cells:
            columns += [pa.array(cells[:, part], from_pandas=False) for part in range(cells.shape[1])]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), left.starts)

    def cut(self, batch: Batch, keys: KeySlots) -> Cut:
        """Parts as they came, their keys in slots."""
        rows = batch.rows
        slots = keys.assign([rows.column(name) for name in self.key], rows.num_rows)
        cells = tuple(
            np.stack([_numbers(rows, name) for name in _names(register)], axis=1)
            for register in self._registers
        )
        return Cut(_numbers(rows, _WINDOW), slots, _numbers(rows, _START), cells)


def _names(register: Register) -> list[str]:
    """The columns of a register: one for each number of a cell."""
    name = str(register.kind) if register.column is None else f"{register.kind} of {register.column}"
    return [f"{name}.{part}" for part in range(register.rule.width)]


def watermarks_of(parts: Batch) -> Ints:
    """By which watermark the rows of each part were judged."""
    return _numbers(parts.rows, _WATERMARK)


def _numbers(rows: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False))
