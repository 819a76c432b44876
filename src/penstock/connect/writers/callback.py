"""Hand each committed batch to a function."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.protocol import Delivery
from penstock.connect.writers.folder import StagedOutput
from penstock.errors import ConnectorError, FunctionError, PenstockError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Callback:
    """A writer that calls a function with each batch of rows."""

    function: Callable[[pa.RecordBatch], object]

    @property
    def delivery(self) -> Delivery:
        """A crash after the call and before the commit calls again."""
        return Delivery.AT_LEAST_ONCE

    @property
    def accepts_updates(self) -> bool:
        """The function gets every row, with `final` saying which."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Nothing to prepare."""
        return StagedOutput(self._call)

    def describe(self) -> str:
        """Such as `callback notify`."""
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
