"""Kept rows as an Arrow batch for a snapshot, and back.

The names of the rows' own columns get a beginning that none of ours has, so that they cannot clash.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.stages.batch import Ints, Mask
from penstock.stages.store import Arriving, Values

PLACE = "place"
_ROW = "row "


def places_of(slots: Ints, wanted: Ints) -> Ints:
    """Where each slot stands in `wanted`, in which each is once and all are."""
    order = np.argsort(wanted, kind="stable")
    return np.asarray(order[np.searchsorted(wanted[order], slots)], np.int64)


def saved_rows(rows: Arriving | None, wanted: Ints) -> pa.RecordBatch:
    """Rows to be saved; "place" says where in `wanted` the slot of each stands."""
    if rows is None:
        return pa.RecordBatch.from_pydict({PLACE: pa.array([], pa.int64())})
    saved = {PLACE: pa.array(places_of(rows.slots, wanted)), "time": pa.array(rows.times)}
    saved |= {f"order {place}": pa.array(each) for place, each in enumerate(rows.order)}
    for place, values in enumerate(rows.values):
        mask = None if values.valid is None else ~values.valid
        saved[f"value {place}"] = _array(values.data, mask)
    if rows.tickets is not None:
        saved["ticket"] = pa.array(rows.tickets)
    batch = pa.RecordBatch.from_pydict(saved)
    if rows.rows is not None:
        for field, column in zip(rows.rows.schema, rows.rows.columns, strict=True):
            batch = batch.append_column(field.with_name(f"{_ROW}{field.name}"), column)
    return batch


def loaded_rows(saved: pa.RecordBatch, slots: Ints) -> Arriving | None:
    """The rows of a snapshot, in the slots that their keys have now; None if it has none."""
    if saved.num_rows == 0:
        return None
    names = saved.schema.names
    fields = [field for field in saved.schema if field.name.startswith(_ROW)]
    schema = pa.schema([field.with_name(field.name.removeprefix(_ROW)) for field in fields])
    columns = [saved.column(field.name) for field in fields]
    return Arriving(
        slots[ints_of(saved, PLACE)],
        ints_of(saved, "time"),
        tuple(ints_of(saved, name) for name in names if name.startswith("order ")),
        tuple(_values(saved.column(name)) for name in names if name.startswith("value ")),
        pa.RecordBatch.from_arrays(columns, schema=schema) if columns else None,
        ints_of(saved, "ticket") if "ticket" in names else None,
    )


def ints_of(saved: pa.RecordBatch, name: str) -> Ints:
    """An int64 column without nulls; a copy, because Arrow's memory is read-only."""
    return np.array(saved.column(name).to_numpy(zero_copy_only=False), np.int64)


def _array(data: npt.NDArray[Any], mask: Mask | None) -> pa.Array:
    """Numbers, or the parts of a fold: a few numbers for each row."""
    if data.ndim == 1:
        return pa.array(data, mask=mask, from_pandas=False)
    numbers = pa.array(data.reshape(-1), from_pandas=False)
    nulls = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(numbers, data.shape[1], mask=nulls)


def _values(array: pa.Array) -> Values:
    if kind.is_fixed_size_list(array.type):
        width = array.type.list_size
        # Not flatten(), which leaves out the parts of rows that are null.
        parts = array.values.to_numpy()[array.offset * width : (array.offset + len(array)) * width]
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        return Values(parts.reshape(-1, width), valid)
    if array.null_count == 0:
        return Values(array.to_numpy())
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return Values(array.fill_null(0).to_numpy(), np.asarray(valid, np.bool_))
