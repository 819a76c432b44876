"""A batch as bytes, for another process: Arrow IPC of its columns, its times and its order."""

from __future__ import annotations

import pyarrow as pa

from penstock.stages.batch import Batch


def packed_up(batch: Batch) -> pa.Buffer:
    """A batch as bytes: its columns, then times and order under names of their place."""
    extra = [pa.array(batch.times), *(pa.array(column) for column in batch.order)]
    names = [str(place) for place in range(batch.rows.num_columns + len(extra))]
    whole = pa.RecordBatch.from_arrays([*batch.rows.columns, *extra], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
    return sink.getvalue()


def unpack(body: bytes, schema: pa.Schema) -> Batch:
    """And back; `schema` is that of the rows."""
    with pa.ipc.open_stream(body) as reader:
        whole = reader.read_next_batch()
    n = len(schema)
    rows = pa.RecordBatch.from_arrays(whole.columns[:n], schema=schema)
    times, *order = (column.to_numpy(zero_copy_only=False) for column in whole.columns[n:])
    return Batch(rows, times, tuple(order))
