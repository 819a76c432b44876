"""Results kept in memory, and what held-back batches share."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock.write as write
from penstock.connect.protocol import Delivery, Writer
from penstock.errors import ConnectorError

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def test_rows_show_when_their_batch_is_committed_and_once() -> None:
    memory = write.memory()
    out = memory.open(SCHEMA, "sink")
    out.write(0, rows(1))
    out.write(0, rows(2, 3))
    assert memory.rows() == []
    out.commit(0)
    out.write(0, rows(1, 2, 3))
    out.commit(0)
    out.write(1, rows())
    out.commit(1)
    out.write(2, rows(4))
    out.commit(2)
    assert memory.rows() == [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]
    assert [batch.num_rows for batch in memory.batches()] == [3, 1]
    assert memory.table() == pa.table({"a": [1, 2, 3, 4]})


def test_what_is_not_committed_is_dropped() -> None:
    memory = write.memory()
    out = memory.open(SCHEMA, "sink")
    out.write(0, rows(1))
    out.close()
    assert memory.table() == SCHEMA.empty_table()


def test_a_new_run_starts_empty_and_a_resumed_one_goes_on() -> None:
    memory = write.memory()
    for resume, expected in ((False, [1]), (True, [1, 2]), (False, [1])):
        out = memory.open(SCHEMA, "sink", resume=resume)
        for batch in range(len(expected)):
            out.write(batch, rows(batch + 1))
            out.commit(batch)
        out.close()
        assert memory.table()["a"].to_pylist() == expected


def test_two_sinks_cannot_share_one_memory() -> None:
    memory = write.memory()
    memory.open(SCHEMA, "views")
    with pytest.raises(ConnectorError, match='is being written by sink "views"') as caught:
        memory.open(SCHEMA, "late")
    assert caught.value.hint == 'give sink "late" a memory() of its own'


def test_there_is_no_table_before_a_run() -> None:
    memory = write.memory()
    assert memory.rows() == []
    with pytest.raises(ConnectorError, match="holds no table yet"):
        memory.table()


def test_memory_says_what_it_is() -> None:
    memory = write.memory()
    assert isinstance(memory, Writer)
    assert (memory.delivery, memory.accepts_updates, memory.describe()) == (
        Delivery.AT_MOST_ONCE,
        True,
        "memory",
    )
