"""Whatever the graph and its functions: processes give the rows that the reference engine gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.conformance.test_random_graphs import Batches, graph_of, streams
from tests.engines.local.test_simulation import run_graph
from tests.support.random_graphs import EVENTS, Choice, choices

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Work:
    """A step with a function that fails on some rows, drawn at random."""

    kind: str
    by: int
    on_error: str
    degree: int


def works() -> st.SearchStrategy[list[Work]]:
    kinds = st.sampled_from(["map", "filter", "flat_map", "batch", "batch filter", "state", "accumulate"])
    policies = st.sampled_from(["skip", "dead_letter"])
    return st.lists(
        st.builds(Work, kinds, st.integers(2, 5), policies, st.integers(1, 3)), min_size=1, max_size=4
    )


def add_step(pipe: ps.MultiPipe, work: Work) -> ps.MultiPipe:
    """The pipe with a step more; its columns stay the same."""
    by = work.by

    def row(row: Any) -> dict[str, Any]:
        return {"key": row.key, "value": 840 // (row.value % by), "t": row.t}

    def rows(table: Any) -> list[dict[str, Any]]:
        return [row(table)] * (table.value % 3)

    def batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        if pc.any(pc.equal(batch["value"], by)).as_py():
            raise ValueError(f"there is a {by}")
        return batch.set_column(1, "value", pc.add(batch["value"], 1))

    def note(row: Any, seen: list[int]) -> bool:
        seen.append(840 // (row.value % by))
        return len(seen) % by != 1

    options: Any = {"on_error": work.on_error, "parallelism": work.degree}
    if work.kind == "map":
        return pipe.map(row, schema=EVENTS, **options)
    if work.kind == "filter":
        return pipe.filter(lambda record: 840 // (record.value % by) > 300, **options)
    if work.kind == "flat_map":
        return pipe.flat_map(rows, schema=EVENTS, **options)
    if work.kind == "batch":
        return pipe.map(ps.batch(batch, schema=EVENTS), **options)
    if work.kind == "batch filter":
        return pipe.filter(ps.batch(lambda rows_in: pc.less(batch(rows_in)["value"], 10)), **options)
    if work.kind == "state":
        return pipe.key_by("key").filter(note, state=list, **options)
    return pipe.key_by("key").accumulate(
        lambda record, n: (n + record.value) % 1000, 0, schema={"value": "int64"}, **options
    )


@settings(deadline=None, max_examples=20)
@given(
    drawn=works(),
    given_rows=streams(),
    chaining=st.booleans(),
    queue_size=st.sampled_from([1, 64]),
    seed=st.none() | st.integers(0, 2**32),
)
def test_functions_that_fail_on_some_rows_give_what_the_reference_gives(
    drawn: list[Work], given_rows: list[Batches], chaining: bool, queue_size: int, seed: int | None
) -> None:
    graph = ps.PipeGraph("drawn", chaining=chaining)
    pipe = graph.source(ps.read.batches(given_rows[0], schema=EVENTS), time="t", time_unit="s", delay=3)
    for work in drawn:
        pipe = add_step(pipe, work)
        if work.on_error == "dead_letter":
            pipe.errors.sink(ps.write.memory())
        if work.kind == "accumulate":
            pipe = pipe.map(lambda row: {"key": row.key, "value": row.value, "t": row.value}, schema=EVENTS)
    pipe.sink(ps.write.memory())
    options = ps.LocalOptions(workers="process", deterministic=True, queue_size=queue_size, seed=seed)
    assert run_graph(graph, "local", options) == run_graph(graph, "reference")


@settings(deadline=None, max_examples=20)
@given(done=choices(max_size=8), given_rows=streams(), chaining=st.booleans())
def test_any_graph_gives_what_the_reference_gives(
    done: list[Choice], given_rows: list[Batches], chaining: bool
) -> None:
    graph = graph_of(done, given_rows, chaining=chaining)
    options = ps.LocalOptions(workers="process", deterministic=True)
    assert run_graph(graph, "local", options) == run_graph(graph, "reference")
