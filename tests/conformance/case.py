"""A case: a small graph, rows with the cuts between batches written out, and the rows that must leave.

`case.timed_source("t key v", [(1, "a", 5)], [(12, "a", 7)])` is a source of two batches, and
`case.gives(pipe, "v", (5,), (7,))` runs the graph and compares as multisets. Columns `t` and `v` are int64
and `key` is a string unless said otherwise, as in `"t v:float64"`. Only what users see of Penstock is used,
so that any engine can be judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.accounts import Accounts
from penstock.engines.protocol import RunResult

TYPES = {"t": "int64", "key": "string", "v": "int64"}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave: the rows of each pipe asked for, and the accounts of every step."""

    tables: tuple[pa.Table, ...]
    result: RunResult

    def rows(self, pipe: int = 0) -> list[Row]:
        """The rows of a pipe, in the order they left."""
        return [dict(row) for row in self.tables[pipe].to_pylist()]

    def values(self, column: str, pipe: int = 0) -> list[Any]:
        """One column of a pipe, in the order its rows left."""
        return [row[column] for row in self.rows(pipe)]

    def bag(self, column: str, pipe: int = 0) -> list[Any]:
        """One column of a pipe, sorted: for where no order is promised."""
        return sorted(self.values(column, pipe))

    def account(self, step: str) -> Accounts:
        """What became of the rows of a step."""
        return self.result.accounts[step]


class Case:
    """A graph under construction on one engine, with a clock that stands still."""

    def __init__(self, engine: str, *, master: str | None = None) -> None:
        self.engine, self.master = engine, master
        self.clock = ps.ManualClock()
        self.graph = ps.PipeGraph("case")

    def timed_source(self, columns: str, *batches: Sequence[tuple[Any, ...]], **options: Any) -> ps.MultiPipe:
        """A source whose first column is the time: in seconds if an int64, no `delay=` unless given."""
        schema = typed(columns)
        time = next(iter(schema))
        defaults: dict[str, Any] = {"time_unit": "s"} if schema[time] == "int64" else {}
        if "watermark" not in options:
            defaults["delay"] = "0 s"
        return self.graph.source(cut(columns, *batches), time=time, **{**defaults, **options})

    def untimed_source(
        self, columns: str, *batches: Sequence[tuple[Any, ...]], **options: Any
    ) -> ps.MultiPipe:
        """A source without time."""
        return self.graph.source(cut(columns, *batches), **options)

    def run(self, *pipes: ps.MultiPipe, balanced: bool = True, **options: Any) -> Outcome:
        """Run the graph and take what leaves the pipes; every account must add up."""
        sinks = [ps.write.memory() for _ in pipes]
        for pipe, memory in zip(pipes, sinks, strict=True):
            pipe.sink(memory)
        if self.engine == "local":
            options.setdefault("options", ps.LocalOptions(deterministic=True))
        result = self.graph.run(self.engine, clock=self.clock, master=self.master, **options)
        if balanced:
            wrong = {name: account for name, account in result.accounts.items() if not account.is_balanced}
            assert not wrong, f"accounts do not add up: {wrong}"
        return Outcome(tuple(memory.table() for memory in sinks), result)

    def gives(self, pipe: ps.MultiPipe, columns: str, *expected: tuple[Any, ...], **options: Any) -> Outcome:
        """Run the graph: exactly these columns and, in any order, these rows must leave the pipe."""
        outcome = self.run(pipe, **options)
        same_rows(outcome.tables[0], columns, *expected)
        return outcome


def typed(columns: str) -> dict[str, Any]:
    """The schema of a header: `"t key v:float64"`."""
    parts = [part.partition(":") for part in columns.split()]
    return {name: type_ or TYPES[name] for name, _, type_ in parts}


def cut(columns: str, *batches: Sequence[tuple[Any, ...]], schema: Any = None) -> Any:
    """A reader of these batches."""
    names = list(typed(columns)) if schema is None else columns.split()
    rows = [[dict(zip(names, row, strict=True)) for row in batch] for batch in batches]
    return ps.read.batches(rows, schema=typed(columns) if schema is None else schema)


def same_rows(table: pa.Table | list[Row], columns: str, *expected: tuple[Any, ...]) -> None:
    """Assert that a table has these columns and, as a multiset, these rows; floats within 1e-9."""
    names = columns.split()
    if isinstance(table, pa.Table):
        assert table.schema.names == names
        rows = table.to_pylist()
    else:
        rows = table
    got = sorted((tuple(row[name] for name in names) for row in rows), key=_place)
    wanted = sorted(expected, key=_place)
    assert alike(got, wanted), f"got    {got}\nwanted {wanted}"


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same answer: NaN is NaN, floats may differ in the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and bool(one == other)


def _place(value: Any) -> Any:
    """A place in some fixed order, the same for rounded floats and for both zeros."""
    if isinstance(value, float):
        return f"{value + 0.0:.6g}"
    if isinstance(value, dict):
        return repr({name: _place(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return (
            [_place(item) for item in value] if isinstance(value, tuple) else repr(list(map(_place, value)))
        )
    return repr(value)
