"""Sink: where rows leave the graph. Nothing comes after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.connect.protocol import Writer
from penstock.errors import GraphError
from penstock.frozen import dataclass
from penstock.operators.op import OnError, Op
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Sink(Op):
    """Write rows out."""

    writer: Writer

    kind: ClassVar[str] = "SNK"
    verb: ClassVar[str] = "sink"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.writer, Writer):
            raise GraphError(
                f"a sink writes to a writer, and got {type(self.writer).__name__}",
                hint="use ps.write.memory(), ps.write.parquet(...), ps.write.jsonl(...), ...",
            )

        if self.on_error != OnError.FAIL:
            raise GraphError(
                f'on_error="{self.on_error}" is not for a sink: rows that cannot be written stop the run',
                hint="leave on_error out",
            )

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return no stream: rows end here."""
        return {}

    def describe(self) -> str:
        """Return the writer."""
        return f"write {self.writer.describe()}, {self.writer.delivery}"
