"""The writer that calls a function with each committed batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.protocol import Delivery
from penstock.connect.writers.staged_output import StagedOutput
from penstock.errors import ConnectorError, FunctionError, PenstockError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Callback:
    """A writer that calls a function with each batch of rows.

    A crash after the call and before the commit makes it call again. Early results are rows too, with a
    column that says which are final.
    """

    function: Callable[[pa.RecordBatch], object]

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Returns an output that calls the function on every commit."""
        return StagedOutput(self._call)

    def describe(self) -> str:
        """Returns such as `callback notify`."""
        return f"callback {name_of(self.function)}"

    def _call(self, batch: int, rows: pa.RecordBatch) -> None:
        try:
            self.function(rows)
        except PenstockError:
            raise
        except Exception as problem:
            raise FunctionError(
                f"{name_of(self.function)} raised {type(problem).__name__}: {problem}",
                where=find_definition(self.function),
                detail=f"it got batch {batch}: {rows.num_rows} rows of {', '.join(rows.schema.names)}",
                hint="mend the function; the batch is not committed and will come again after a restart",
            ) from problem


def callback(function: Callable[[pa.RecordBatch], object]) -> Callback:
    """Call a function with the rows of each batch, as a RecordBatch; batches without rows are left out."""
    if not callable(function):
        raise ConnectorError(
            f"{function!r:.80} cannot be called", hint="give a function: ps.write.callback(print)"
        )
    return Callback(function)
