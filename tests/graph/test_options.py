"""Options and settings: the same on every verb, told from columns, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import EngineError, GraphError, col
from penstock.options import StepOptions
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

OUT = {"n": "int64"}
VERBS = {
    "with_columns": lambda p, **o: p.with_columns(x=col("n"), **o),
    "select": lambda p, **o: p.select("n", **o),
    "filter": lambda p, **o: p.filter(col("paid"), **o),
    "map": lambda p, **o: p.map(lambda row: {"n": 1}, schema=OUT, **o),
    "flat_map": lambda p, **o: p.flat_map(lambda row: [], schema=OUT, **o),
    "accumulate": lambda p, **o: p.key_by("user").accumulate(lambda row, s: s, 0, schema=OUT, **o),
    "split": lambda p, **o: p.split(lambda row: 0, 2, **o)[0],
    "window": lambda p, **o: p.window(ps.tumbling("1 s"), **o).aggregate(n=ps.count()),
    "join_table": lambda p, **o: p.join_table([{"user": "a", "age": 3}], on="user", **o),
    "join": lambda p, **o: p.join(p.select("user"), on="user", within="1 s", **o),
    "sink": lambda p, **o: p.graph[p.sink(ps.write.memory(), **o).step],
}
ADDED: Any = {"name": "step", "parallelism": 2, "batch_size": 10, "dedicated": True}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_the_same_options(verb: str) -> None:
    VERBS[verb](pipe := trades(), **ADDED)
    op = pipe.graph.steps["step"].op
    assert {name: getattr(op, name) for name in ADDED} == ADDED


@pytest.mark.parametrize("verb", ["filter", "map", "accumulate", "join_table", "join", "sink"])
def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(verb: str) -> None:
    with pytest.raises(GraphError, match=f"{verb} has no option paralelism=") as refusal:
        VERBS[verb](trades(), paralelism=2)
    error = refusal.value
    assert (error.step, error.hint) == (verb, "did you mean parallelism=?")
    assert error.where is not None
    assert set(StepOptions.__annotations__) <= set((error.detail or "").replace(",", "").split())


def test_a_keyword_with_an_expression_is_a_column_also_if_it_is_called_like_an_option() -> None:
    pipe = trades().with_columns(name=col("user"), routing=col("n"), batch_size=10)
    assert {"name", "routing"} <= set(pipe.schema.names)
    assert pipe.graph.steps["with_columns"].op.batch_size == 10
    assert trades().select("n", name=col("user")).schema.names == ["n", "name"]
    assert set(trades().with_columns({"name": "constant"}).schema.names) >= {"name"}


def test_a_branch_and_a_window_may_be_called_like_an_option() -> None:
    branches = trades().split(name=col("n") > 1, routing=col("n") <= 1)
    assert [pipe.feeds[0].port for pipe in branches] == ["name", "routing"]
    windows: Any = {"name": ps.tumbling("1 s"), "routing": ps.tumbling("2 s")}
    assert "window" in trades().window(**windows).aggregate(n=ps.count()).schema.names


@pytest.mark.parametrize(
    "name", [*StepOptions.__annotations__, "schema", "state", "keeps", "compile", "key", "self"]
)
def test_a_column_may_have_any_name_on_every_verb_that_takes_columns(name: str) -> None:
    expr: Any = {name: col("user")}
    assert trades().with_columns(**expr).schema.names[-1] == name
    assert trades().with_columns(expr).schema.names[-1] == name
    assert trades().with_columns({name: 7}).schema.names[-1] == name
    assert trades().select("n", **expr).schema.names == ["n", name]
    assert trades().key_by(**expr).stream.key == (name,)
    tags: Any = {name: col("tags")}
    for pipe in (trades().flat_map(tags), trades().flat_map(**tags)):
        assert pipe.schema.field(name).type == "string"
    branches: Any = {name: col("n") > 1, "rest": col("n") <= 1}
    assert [pipe.feeds[0].port for pipe in trades().split(**branches)] == [name, "rest"]
    counts: Any = {name: ps.count()}
    assert trades().window(ps.tumbling("1 s")).aggregate(**counts).schema.names[-1] == name


@pytest.mark.parametrize(
    "name", [*StepOptions.__annotations__, "lateness", "early", "partial", "pattern", "device"]
)
def test_a_window_may_have_any_name(name: str) -> None:
    windows = {name: ps.tumbling("1 s"), "slow": ps.tumbling("2 s")}
    op: Any = trades().window(windows).aggregate(n=ps.count()).graph.steps["window"].op
    assert [label for label, _ in op.specs] == [name, "slow"]


def test_a_plain_value_under_the_name_of_an_option_is_the_option_and_alone_it_is_refused() -> None:
    step = trades().with_columns(x=1, name="Ada").graph.steps["Ada"]
    assert "name" not in step.outputs["out"].columns
    check_refusal(
        Mistake(
            "only options",
            lambda p: p.with_columns(name="Ada", parallelism=2),
            ps.FunctionError,
            "with_columns names no column: name='Ada', parallelism=2 is taken for an option of the step",
            "with_columns",
            "for a column of that name: .with_columns(name=ps.lit(...))",
        )
    )


@pytest.mark.parametrize("name", ["name", "state", "schema", "keeps", "compile"])
def test_map_takes_no_columns_and_says_which_verb_does(name: str) -> None:
    expr: Any = {name: col("user")}
    check_refusal(
        Mistake(
            name,
            lambda p: p.map(**expr),
            ps.FunctionError,
            f'map takes a function, and {name}=col("user") is a column',
            "map",
            f'.with_columns({name}=col("user"))',
        )
    )


def test_select_takes_columns_as_expressions_too() -> None:
    assert trades().select(col("n"), "user", x=col("n") + 1).schema.names == ["n", "user", "x"]


def test_a_filter_of_several_expressions_keeps_rows_for_which_all_are_true() -> None:
    rows = ps.PipeGraph("g", engine="reference").source(ps.read.rows([{"a": 1, "b": 1}, {"a": 1, "b": 2}]))
    assert rows.filter(col("a") == 1, col("b") == 2).collect().to_pylist() == [{"a": 1, "b": 2}]


def test_union_is_merge_under_the_name_that_people_know() -> None:
    graph = ps.PipeGraph("g", engine="reference")
    left, right = (graph.source(ps.read.rows([{"a": n}])) for n in (1, 2))
    assert left.union(right).feeds == left.merge(right).feeds
    assert sorted(left.union(right).collect()["a"].to_pylist()) == [1, 2]
    with pytest.raises(GraphError, match="union needs another pipe"):
        left.union()


def test_run_start_and_collect_use_the_engine_of_the_graph() -> None:
    graph = ps.PipeGraph("g", engine="reference")
    out = ps.write.memory()
    rows = graph.source(ps.read.rows([{"a": 1}]))
    rows.sink(out)
    listened: list[Any] = []
    graph.run(events=listened.append)
    graph.start(events=listened.append).wait()
    rows.collect(events=listened.append)
    graph.collect(rows, events=listened.append)
    started = [event.engine for event in listened if isinstance(event, ps.events.RunStarted)]
    assert started == ["reference"] * 4
    assert ps.PipeGraph("g").engine == "spark"


@pytest.mark.parametrize("verb", ["run", "start"])
def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_one(verb: str) -> None:
    pipe = trades()
    pipe.sink(ps.write.memory())
    graph: Any = pipe.graph
    with pytest.raises(EngineError, match=f"{verb} has no option checkpont=") as refusal:
        getattr(graph, verb)("reference", checkpont="folder")
    assert refusal.value.hint == "did you mean checkpoint=?"


def test_an_operator_object_has_options_of_its_own() -> None:
    pipe = trades()
    join = ps.StreamJoin("user", within="1 s", suffix="_r")
    with pytest.raises(GraphError, match="StreamJoin has options of its own, and got name= beside it"):
        pipe.graph.operator(join, inputs=[pipe, pipe], name="pairs")


def test_a_source_has_no_routing() -> None:
    check_refusal(
        Mistake(
            "routing",
            lambda p: p.graph.source(ps.read.rows([{"a": 1}]), routing="key_by"),
            GraphError,
            'routing="key_by" is not for a source',
            "source",
        )
    )
