"""Which steps become processes, and what explain() says of it."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.local.processes import pool as process_pool
from penstock.engines.local.processes.pool import can_run_in_process, explain_workers, uses_processes
from penstock.plan.plan import Step
from tests.support.process_runs import NUMBERS, numbers

cache: dict[int, int] = {}


def plain(row: Any) -> dict[str, int]:
    return {"v": row.v}


def looks_up(row: Any) -> dict[str, int | None]:
    return {"v": cache.get(row.v)}


def keep(row: Any, state: list[int]) -> bool:
    return True


def whole(batch: Any) -> Any:
    return batch


def steps(parallelism: Any = 2) -> dict[str, Step]:
    """A step of every kind, by name."""
    graph = ps.PipeGraph("kinds")
    pipe = numbers(graph, 3)
    n = parallelism
    pipe = pipe.map(plain, schema=NUMBERS, name="map", parallelism=n)
    pipe = pipe.flat_map(lambda row: [{"v": row.v}], schema=NUMBERS, name="flat_map", parallelism=n)
    pipe = pipe.filter(lambda row: row.v > 1, name="filter", parallelism=n)
    pipe = pipe.map(looks_up, schema=NUMBERS, name="looks up", parallelism=n)
    pipe = pipe.map(ps.batch(whole, schema=NUMBERS), name="batch", parallelism=n)
    pipe = pipe.filter(col("v") > 1, name="expression", parallelism=n)
    pipe = pipe.map(lambda row: {"x": row.v * 2.0}, schema={"x": "float64"}, name="to floats", parallelism=n)
    pipe = pipe.map(lambda row: {"x": row.x * 2.0}, schema={"x": "float64"}, name="compiled", parallelism=n)
    keyed = pipe.key_by("x").filter(keep, state=list, name="state", parallelism=n)
    keyed.accumulate(lambda row, n: n + 1, 0, schema={"n": "int64"}, name="count", parallelism=n).sink(
        ps.write.memory()
    )
    return {step.name: step for step in graph.plan()}


PLAIN = {"map", "flat_map", "filter", "to floats"}
MOVING = PLAIN | {"looks up", "batch", "state", "count"}


def test_functions_in_plain_python_can_move_and_what_scales_on_threads_stays() -> None:
    assert {name for name, step in steps().items() if can_run_in_process(step)} == MOVING


def test_asked_for_processes_whatever_can_move_does_so() -> None:
    assert {name for name, step in steps().items() if uses_processes(step, "process")} == MOVING
    assert {name for name, step in steps(1).items() if uses_processes(step, "process")} == MOVING
    assert not any(uses_processes(step, "thread") for step in steps().values())


def test_by_itself_only_what_has_replicas_and_shares_nothing_rescaler() -> None:
    assert {name for name, step in steps().items() if uses_processes(step, "auto")} == PLAIN
    assert not any(uses_processes(step, "auto") for step in steps(1).values())


def test_state_of_elastic_steps_stays_where_it_can_move_between_replicas() -> None:
    elastic = steps((1, 4))
    assert {name for name, step in elastic.items() if uses_processes(step, "process")} == MOVING - {
        "state",
        "count",
    }
    assert {name for name, step in elastic.items() if uses_processes(step, "auto")} == PLAIN


def test_explain_says_what_replicas_are_and_why() -> None:
    pays = (
        "replicas turn into processes when a batch takes much longer than the way there and back, "
        "on more than one core and in a program without other threads"
    )
    asks = 'workers="process" makes them processes'
    assert explain_workers(steps().values()) == [
        f"map: {pays}",
        f"flat_map: {pays}",
        f"filter: {pays}",
        f"looks up: replicas are threads, because it uses cache, a dict that may change; {asks}",
        "batch: replicas are threads, because what it calls on whole columns may well scale on threads; "
        + asks,
        f"to floats: {pays}",
        f"state: replicas are threads, because its state would be in another process; {asks}",
        f"count: replicas are threads, because its state would be in another process; {asks}",
    ]
    assert explain_workers(steps(1).values()) == []


def test_without_fork_all_stay_threads_and_explain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "CAN_FORK", False)
    assert not any(uses_processes(step, "process") for step in steps().values())
    assert explain_workers([steps()["map"]]) == [
        "map: replicas are threads, because this platform has no fork, "
        "by which functions would reach another process"
    ]


def test_explain_of_a_graph_has_it() -> None:
    graph = ps.PipeGraph("explained")
    numbers(graph, 3).map(plain, schema=NUMBERS, name="plain", parallelism=2).sink(ps.write.memory())
    assert "plain: replicas turn into processes when" in str(graph.explain(engine="local"))
