"""Rounds of rows for tests of stores: what comes, in plain values, and how a store is given it and read.

A row has a number of its own, which is also its value in registers and its only column, so that what a
window holds can be read off as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.store import ClosedWindows, Decided, WindowStore

SCHEMA = pa.schema([("number", pa.int64()), ("half", pa.float64())])
REGISTERS = (
    WindowAccumulator(AccumulatorKind.ROWS),
    WindowAccumulator(AccumulatorKind.COUNT, 1),
    WindowAccumulator(AccumulatorKind.INT_SUM, 0),
    WindowAccumulator(AccumulatorKind.FLOAT_SUM, 1),
    WindowAccumulator(AccumulatorKind.MAX, 0),
    WindowAccumulator(AccumulatorKind.MIN_COUNT, 0),
    WindowAccumulator(AccumulatorKind.MOMENTS, 1),
    WindowAccumulator(AccumulatorKind.MAX_TIME),
)


@dataclass(frozen=True)
class Row:
    number: int
    slot: int
    time: int

    @property
    def half(self) -> float | None:
        """A second value; null for every third row."""
        return None if self.number % 3 == 0 else self.number / 2


@dataclass(frozen=True)
class Round:
    rows: list[Row]
    watermark: int  # after the round


def input_rows(rows: list[Row], *, tags: bool = False) -> InputRows:
    numbers = np.array([row.number for row in rows], np.int64)
    halves = pa.array([row.half for row in rows], pa.float64())
    valid = np.array([row.half is not None for row in rows], np.bool_)
    data = np.array([row.half or 0.0 for row in rows], np.float64)
    return InputRows(
        np.array([row.slot for row in rows], np.int64),
        np.array([row.time for row in rows], np.int64),
        values=(Values(numbers), Values(data, valid)),
        rows=pa.RecordBatch.from_arrays([pa.array(numbers), halves], schema=SCHEMA),
        tags=numbers if tags else None,
    )


def decisions_of(store: WindowStore, rows: InputRows, watermark: int) -> Decided:
    """Add rows; None, which is short for "all admitted, none missed", is written out."""
    shape = (store.n_kinds, len(rows.slots))
    decided = store.add(rows, watermark)
    return (np.zeros(shape, np.uint8), np.zeros(shape, np.int64)) if decided is None else decided


@st.composite
def rounds(draw: st.DrawFn, *, n_slots: int = 3, span: int = 60) -> list[Round]:
    """Rounds with rows of any age, and a watermark that follows the greatest time at some distance."""
    delay = draw(st.integers(0, 15))
    rounds: list[Round] = []
    number, greatest = 0, NEVER
    for _ in range(draw(st.integers(1, 6))):
        rows = []
        for slot, time in draw(
            st.lists(st.tuples(st.integers(0, n_slots - 1), st.integers(-20, span)), max_size=12)
        ):
            rows.append(Row(number, slot, time))
            number += 1
            greatest = max(greatest, time)
        rounds.append(Round(rows, max(NEVER, greatest - delay)))
    return [*rounds, Round([], ENDED)]


def watermarks_before(rounds: list[Round]) -> list[int]:
    """The watermark that judges each round."""
    return [NEVER, *(round_.watermark for round_ in rounds[:-1])]


def windows(left: ClosedWindows) -> list[tuple[Any, ...]]:
    """(slot, start, end, time, index) of each window, in the order it has there."""
    index = np.full(len(left.slots), -1) if left.index is None else left.index
    columns = (left.slots, left.starts, left.ends, left.times, index)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def rows_in(left: ClosedWindows) -> list[list[int]]:
    """The numbers of each window's rows, in order."""
    assert left.members is not None
    numbers = left.members.rows.column("number").to_numpy()[left.members.places]
    pairs = zip(left.members.offsets[:-1], left.members.offsets[1:], strict=True)
    return [numbers[start:end].tolist() for start, end in pairs]


def registers_in(left: ClosedWindows) -> list[tuple[list[float], ...]]:
    """The cells of REGISTERS of each window."""
    return [
        tuple(np.round(cells[i].astype(float), 6).tolist() for cells in left.cells)
        for i in range(len(left.slots))
    ]


def registers_of(rows: list[Row]) -> tuple[list[float], ...]:
    """What REGISTERS should be over some rows."""
    numbers, halves = [row.number for row in rows], [row.half for row in rows if row.half is not None]
    mean = sum(halves) / len(halves) if halves else 0.0
    return (
        [len(rows)],
        [len(halves)],
        [0.0, float(sum(numbers))],
        [sum(halves)],
        [max(numbers)],
        [float(~min(numbers)), 1.0],
        [len(halves), round(mean, 6), round(sum((half - mean) ** 2 for half in halves), 6)],
        [max(row.time for row in rows)],
    )
