"""What crosses to another process: batches as Arrow IPC, and failures as plain data.

An exception that crosses a process arrives as text at best; plain data keeps the class, the step, the user's
line and the hint, so that what stopped a step there is raised here as the error it was.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock import errors
from penstock.errors import EngineError, PenstockError, Where
from penstock.stages.rows.batch import Batch


def pack_batch(batch: Batch) -> pa.Buffer:
    """Return a batch as bytes: its columns, then its times and order, named by position."""
    extra = [pa.array(batch.times), *(pa.array(column) for column in batch.order)]
    names = [str(place) for place in range(batch.rows.num_columns + len(extra))]
    whole = pa.RecordBatch.from_arrays([*batch.rows.columns, *extra], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
    return sink.getvalue()


def unpack_batch(body: bytes, schema: pa.Schema) -> Batch:
    """Return the batch of those bytes; `schema` is that of its columns."""
    with pa.ipc.open_stream(body) as reader:
        whole = reader.read_next_batch()
    n = len(schema)
    rows = pa.RecordBatch.from_arrays(whole.columns[:n], schema=schema)
    times, *order = (column.to_numpy(zero_copy_only=False) for column in whole.columns[n:])
    return Batch(rows, times, tuple(order))


_KNOWN = {name: value for name, value in vars(errors).items() if isinstance(value, type)}


def failure_to_dict(failure: BaseException, order: int = 0) -> dict[str, Any]:
    """Return a failure as plain data; of several in one round the one of the least `order` is raised."""
    if not isinstance(failure, PenstockError):
        lines = traceback.format_exception(failure)
        detail = "".join(lines).strip()
        failure = EngineError(f"a worker failed: {type(failure).__name__}", detail=detail)
    where = failure.where
    cause = failure.__cause__
    return {
        "error": type(failure).__name__,
        "fact": failure.fact,
        "step": failure.step,
        "where": None if where is None else [where.file, where.line],
        "detail": failure.detail,
        "hint": failure.hint,
        "cause": None if cause is None else [type(cause).__name__, _text(cause)],
        "order": order,
    }


def failure_from_dict(data: Mapping[str, Any]) -> PenstockError:
    """Return the failure back, to be raised here."""
    kind = _KNOWN.get(data["error"], EngineError)
    where = None if data["where"] is None else Where(*data["where"])
    failure: PenstockError = kind(
        data["fact"], step=data["step"], where=where, detail=data["detail"], hint=data["hint"]
    )
    if data["cause"] is not None:
        failure.__cause__ = _cause(*data["cause"])
    return failure


def _text(cause: BaseException) -> str:
    """Return what the user's exception says, even if it cannot."""
    try:
        return str(cause.args[0]) if len(cause.args) == 1 else str(cause)
    except Exception as worse:
        return f"(its text cannot be shown: {type(worse).__name__})"


def _cause(name: str, text: str) -> BaseException:
    """Return what the user's function raised: the same class if it is one of Python's, else by its name."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        with suppress(TypeError):  # a few want more than a text
            return known(text)
    return RuntimeError(f"{name}: {text}" if text else name)
