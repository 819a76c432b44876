"""Batches handed to a function."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock.write as write
from penstock.connect.protocol import Delivery, Writer
from penstock.errors import ConnectorError, FunctionError

ROWS = pa.record_batch({"a": [1, 2]})


def refuse(rows: pa.RecordBatch) -> None:
    raise KeyError("nobody home")


def test_the_function_gets_each_committed_batch_that_has_rows() -> None:
    seen: list[pa.RecordBatch] = []
    out = write.callback(seen.append).open(ROWS.schema, "alerts")
    for number, rows in enumerate([ROWS, ROWS.slice(0, 0), ROWS.slice(1)]):
        out.write(number, rows)
        out.commit(number)
    out.write(3, ROWS)
    out.close()
    assert [rows["a"].to_pylist() for rows in seen] == [[1, 2], [2]]


def test_what_the_function_raises_names_it_and_its_line() -> None:
    out = write.callback(refuse).open(ROWS.schema, "alerts")
    out.write(7, ROWS)
    with pytest.raises(FunctionError) as caught:
        out.commit(7)
    assert caught.value.fact == "refuse raised KeyError: 'nobody home'"
    assert caught.value.detail == "it got batch 7: 2 rows of a"
    assert "test_callback.py" in str(caught.value.where)


def test_a_callback_says_what_it_is() -> None:
    callback = write.callback(refuse)
    assert isinstance(callback, Writer)
    assert (callback.delivery, callback.accepts_updates, callback.describe()) == (
        Delivery.AT_LEAST_ONCE,
        True,
        "callback refuse",
    )


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConnectorError, match="5 cannot be called"):
        write.callback(5)  # type: ignore[arg-type]  # the mistake under test
