"""What is refused when a run is asked for: no sink, no such engine, things an engine cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import CheckpointError, EngineError, FunctionError, GraphError, NotSupported, col
from penstock.engines.protocol import Gap
from penstock.plan.plan import Plan
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

WRONG: Any = 3
OTHER = trades(ps.PipeGraph("other"))


def end_graph(pipe: ps.MultiPipe) -> ps.PipeGraph:
    """The pipe's graph with a sink."""
    pipe.sink(ps.write.memory())
    return pipe.graph


RUNS = [
    Mistake("no sink", lambda p: p.filter(col("paid")).graph.run("reference"), GraphError,
            'graph "shop" has no sink', also="its steps are trades, filter"),
    Mistake("no steps", lambda p: ps.PipeGraph("empty").run("reference"), GraphError,
            'graph "empty" has no sink', also="no steps at all"),
    Mistake("explain without a sink", lambda p: p.graph.explain(), GraphError, "has no sink"),
    Mistake("what is no engine", lambda p: end_graph(p).run(WRONG), EngineError, "3 is not an engine"),
    Mistake("half a batch", lambda p: end_graph(p).run("reference", until=WRONG / 2), EngineError,
            "until=1.5 is not a number of batches"),
    Mistake("fewer than no batches", lambda p: end_graph(p).run("reference", until=-1), EngineError,
            "until=-1 is not a number of batches"),
    Mistake("a listener that is none", lambda p: end_graph(p).run("reference", events=WRONG), EngineError,
            "events=3 cannot be called", also="events=print"),
    Mistake("nothing to collect", lambda p: p.graph.collect(engine="reference"), GraphError,
            "nothing to collect"),
    Mistake("what is no pipe", lambda p: p.graph.collect(WRONG, engine="reference"), GraphError,
            "collect takes pipes, and got int"),
    Mistake("another graph's pipe", lambda p: p.graph.collect(OTHER, engine="reference"), GraphError,
            'a pipe of graph "other" cannot be collected in "shop"'),
    Mistake("an option that collect has not", lambda p: p.collect("reference", untill=3), EngineError,
            "collect has no option untill=", also="did you mean until=?"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", RUNS, ids=str)
def test_a_run_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_an_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(EngineError, match='there is no engine "flink"') as caught:
        end_graph(trades()).run("flink")
    assert caught.value.detail is not None
    assert "reference" in caught.value.detail
    assert str(caught.value.where).startswith("tests/graph/test_run_mistakes.py:")


def test_a_checkpoint_needs_names_on_steps_with_state(tmp_path: Path) -> None:
    pipe = trades()
    counts = pipe.key_by("user").window(ps.tumbling("1 s")).aggregate(n=ps.count())
    counts.sink(ps.write.memory())
    with pytest.raises((CheckpointError, NotSupported)) as caught:
        pipe.graph.run(AnyEngine(), checkpoint=str(tmp_path))
    assert type(caught.value) is CheckpointError
    assert caught.value.fact == 'step "window" keeps state and was not named'
    assert caught.value.step == "window"
    assert caught.value.hint == 'give it a name of its own: name="views"'
    assert str(caught.value.where).startswith("tests/graph/test_run_mistakes.py:")


def test_joins_and_own_loops_need_names_in_a_checkpoint_too(tmp_path: Path) -> None:
    pipe = trades()
    pairs = pipe.join(pipe, on="user", within="1 s", suffix="_r", name=None)
    pairs.sink(ps.write.memory())
    with pytest.raises(CheckpointError, match='step "join" keeps state and was not named'):
        pipe.graph.run(AnyEngine(), checkpoint=str(tmp_path))
    pipe = trades()
    pipe.process(Loop()).sink(ps.write.memory())
    with pytest.raises(CheckpointError, match='step "process" keeps state and was not named'):
        pipe.graph.run(AnyEngine(), checkpoint=str(tmp_path))


def test_what_an_engine_cannot_do_is_refused_by_step_before_it_starts() -> None:
    pipe = trades()
    pipe.filter(col("paid"), name="paid").sink(ps.write.memory())
    with pytest.raises(NotSupported) as caught:
        pipe.graph.run(Filterless())
    assert caught.value.fact == "the any engine cannot do this: it has no filters"
    assert (caught.value.step, caught.value.hint) == ("paid", "map instead")
    assert str(caught.value.where).startswith("tests/graph/test_run_mistakes.py:")


@pytest.mark.parametrize("option", ["checkpoint", "master", "options"])
def test_the_reference_engine_refuses_what_it_has_no_use_for(option: str) -> None:
    with pytest.raises(NotSupported, match=option) as caught:
        end_graph(trades()).run("reference", **{option: "there"})  # type: ignore[arg-type]  # any of them
    assert str(caught.value.where).startswith("tests/graph/test_run_mistakes.py:")


def test_what_may_hold_a_password_is_in_no_error_and_no_text() -> None:
    options = ps.SparkOptions(conf={"spark.hadoop.fs.s3a.secret.key": "hidden"})
    assert "hidden" not in repr(options)
    settings: list[dict[str, Any]] = [{"options": options}, {"master": "spark://ann:hidden@host"}]
    for setting in settings:
        with pytest.raises(NotSupported) as caught:
            end_graph(trades()).run("reference", **setting)
        assert "hidden" not in str(caught.value)


def test_a_listener_that_fails_stops_the_run_and_is_named() -> None:
    def listener(event: object) -> None:
        raise ValueError("deaf")

    with pytest.raises(FunctionError, match="listener, which listens to the run, failed on Run") as caught:
        end_graph(trades()).run("reference", events=listener)
    assert caught.value.detail == "ValueError: deaf"
    assert str(caught.value.where).startswith("tests/graph/test_run_mistakes.py:")


def test_a_sink_must_not_write_to_a_folder_that_the_graph_reads(tmp_path: Path) -> None:
    # With overwrite=True the sink would remove what is still to be read.
    out = tmp_path / "out"
    first = ps.PipeGraph("first")
    first.source(ps.read.rows([{"user": "ann", "n": 1}])).sink(ps.write.csv(out))
    first.run("reference")
    files = sorted(out.iterdir())
    for readable in (out, out / "*.csv", files[-1], [tmp_path / "out" / ".." / "out"]):
        again = ps.PipeGraph("again").source(ps.read.csv(readable, schema={"user": str}), name="in")
        again.sink(ps.write.csv(out, overwrite=True), name="end")
        with pytest.raises(GraphError, match=r'sink "end" writes to ".*", which step "in" reads') as caught:
            again.graph.run("reference")
        assert caught.value.step == "end"
    assert sorted(out.iterdir()) == files


class AnyEngine:
    """An engine that can do everything, and is never started."""

    name = "any"

    def gaps(self, plan: Any) -> list[Any]:
        return []

    def start(self, plan: Any, **settings: Any) -> Any:
        raise AssertionError("the plan is refused before")

    open_harness = start

    def explain(self, plan: Any) -> list[str]:
        return []


class Filterless(AnyEngine):
    """An engine without filters."""

    def gaps(self, plan: Plan) -> list[Gap]:
        return [
            Gap(step.name, "it has no filters", "map instead")
            for step in plan
            if isinstance(step.op, ps.Filter)
        ]


class Loop(ps.ProcessOperator):
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        raise AssertionError("never run here")
