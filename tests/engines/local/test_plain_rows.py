"""Rows that stay plain Python give what the reference engine gives, one at a time or a few."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.testing.assertions import difference

SCHEMA = {"key": "int64", "value": "int64", "text": "string", "time": "int64"}
ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.integers(0, 3),
        "value": st.none() | st.integers(-5, 5),
        "text": st.none() | st.sampled_from(["a", "b", "ü"]),
        "time": st.integers(0, 20),
    }
)
ROWS = st.lists(ROW, max_size=12)
POLICIES = st.sampled_from(["skip", "dead_letter"])


def halve(row: Any) -> dict[str, Any]:
    """Raises on zero and on null."""
    return {"key": row.key, "value": 10 // row.value, "text": row.text, "time": row.time}


def is_small(row: Any) -> bool:
    """Raises on null, and gives no bool for one of the values."""
    return row.value < 3 if row.value != 1 else "one"  # type: ignore[return-value]  # a wrong answer is the point


def count(row: Any, state: int) -> int:
    """Rows of a key so far; raises now and then."""
    if row.value == 2:
        raise ValueError("two")
    return state + 1


def remember(row: Any, state: list[int]) -> dict[str, Any]:
    """The row with how many came before it."""
    state.append(1)
    return {**row, "value": len(state)}


def graph_of(rows: list[dict[str, Any]], batch: int, policy: Any, *, timed: bool) -> ps.PipeGraph:
    """All steps that plain rows pass as such, and some that want columns."""
    graph = ps.PipeGraph("plain")
    when: dict[str, Any] = {"time": "time", "time_unit": "s", "delay": "5 s"} if timed else {}
    pipe = graph.source(ps.read.iterable(rows, schema=SCHEMA, batch=batch), name="rows", **when)
    pipe = pipe.map(halve, schema=SCHEMA, on_error=policy, name="halved")
    pipe = pipe.filter(is_small, on_error=policy, name="small")
    keyed = pipe.key_by("key")
    keyed.accumulate(count, 0, schema={"n": "int64"}, on_error=policy, name="count").sink(
        ps.write.memory(), name="counts"
    )
    keyed.map(remember, state=list, schema=SCHEMA, name="remembered").sink(ps.write.memory(), name="all")
    pipe.filter(col("value") > 0, name="positive").flat_map(twice, schema=SCHEMA, name="twice").sink(
        ps.write.memory(), name="doubled"
    )
    if policy == "dead_letter":
        for step in ("halved", "small", "count"):
            graph[step].errors.sink(ps.write.memory(), name=f"{step}-errors")
    return graph


def twice(row: Any) -> list[dict[str, Any]]:
    """Each row and its like."""
    return [dict(row), {**row, "value": row.value + 1}]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(ROWS, st.sampled_from([1, 2, 5]), POLICIES, st.booleans())
def test_plain_rows_become_what_they_become_on_the_reference_engine(
    rows: list[dict[str, Any]], batch: int, policy: str, timed: bool
) -> None:
    graph = graph_of(rows, batch, policy, timed=timed)
    collected = [graph["count"], graph["remembered"], graph["twice"]]
    if policy == "dead_letter":
        collected += [graph[step].errors for step in ("halved", "small", "count")]
    options = ps.LocalOptions(threads=1)
    expected = graph.collect(*collected, engine="reference")
    for expect, result in zip(
        expected, graph.collect(*collected, engine="local", options=options), strict=True
    ):
        assert difference(expect, result) is None


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("step", ["map", "filter", "count"])
def test_the_first_plain_row_that_fails_stops_the_run_and_is_shown(step: str, batch: int) -> None:
    rows = [{"key": 1, "value": v, "text": "a", "time": 0} for v in (4, 5, 0 if step == "map" else 2, 0)]
    pipe: Any = ps.PipeGraph("stops").source(ps.read.iterable(rows, schema=SCHEMA, batch=batch))
    if step == "map":
        pipe = pipe.map(halve, schema=SCHEMA)
    elif step == "filter":
        pipe = pipe.filter(raises_on_two)
    else:
        pipe = pipe.key_by("key").accumulate(count, 0, schema={"n": "int64"})
    with pytest.raises(ps.FunctionError, match="failed on a row") as failure:
        pipe.collect(engine="local")
    assert f"value={0 if step == 'map' else 2}" in str(failure.value)


def raises_on_two(row: Any) -> bool:
    """Raises."""
    if row.value == 2:
        raise ValueError("two")
    return True
