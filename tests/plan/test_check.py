"""The checks that need the whole graph, and what a plan leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import GraphError, col
from penstock.accounts import Accounts
from penstock.plan.plan import Ref
from tests.support.trades import trades

PAID = col("paid")
MINUTE = ps.tumbling("1 min")


def test_a_plan_holds_only_what_some_sink_needs() -> None:
    pipe = trades()
    pipe.filter(PAID, name="kept").sink(ps.write.memory(), name="end")
    pipe.with_columns(x=col("n"), name="unused").filter(PAID, name="unused too")
    assert [step.name for step in pipe.graph.plan()] == ["trades", "kept", "end"]


def test_a_plan_for_collecting_leaves_the_sinks_out() -> None:
    pipe = trades()
    filtered = pipe.filter(PAID, name="kept")
    filtered.sink(ps.write.memory())
    plan = pipe.graph.plan(filtered)
    assert [step.name for step in plan] == ["trades", "kept"]
    assert plan.collects == (Ref("kept"),)
    assert plan.sinks == ()
    assert (plan.is_read(Ref("kept")), plan.is_read(Ref("kept", "errors"))) == (True, False)


def test_a_collected_merge_collects_all_its_feeds() -> None:
    pipe = trades()
    more = trades(pipe.graph, name="more")
    assert pipe.graph.plan(pipe.merge(more)).collects == (Ref("trades"), Ref("more"))


def test_a_plan_knows_its_sources_sinks_and_readers() -> None:
    pipe = trades()
    more = trades(pipe.graph, name="more")
    pipe.merge(more).filter(PAID).sink(ps.write.memory(), name="end")
    plan = pipe.graph.plan()
    assert [step.name for step in plan.sources] == ["trades", "more"]
    assert [step.name for step in plan.sinks] == ["end"]
    assert plan.readers(Ref("more")) == (("filter", "in"),)
    assert plan.readers(Ref("end")) == ()
    assert plan["filter"].feeds == (Ref("trades"), Ref("more"))


def test_what_feeds_a_loop_is_part_of_the_plan() -> None:
    class Limiter(ps.ProcessOperator):
        outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}
        control = ("limit",)

        async def process(self, ctx: ps.Context) -> None:
            raise AssertionError("never run here")

    pipe = trades()
    limited = pipe.process(Limiter(), name="limiter")
    limited.filter(col("n") > 9, name="over").feed_back("limiter", "limit")
    limited.sink(ps.write.memory())
    assert [step.name for step in pipe.graph.plan()] == ["trades", "limiter", "over", "sink"]


def test_dead_letters_that_go_nowhere_are_refused_by_name_and_line() -> None:
    pipe = trades()
    pipe.filter(PAID, on_error="dead_letter", name="checked").sink(ps.write.memory())
    with pytest.raises(GraphError) as caught:
        pipe.graph.plan()
    error = caught.value
    assert error.fact == 'dead-lettered rows of step "checked" go nowhere'
    assert error.step == "checked"
    assert str(error.where).startswith("tests/plan/test_check.py:")
    assert error.hint is not None
    assert 'graph["checked"].errors.sink' in error.hint
    pipe.graph["checked"].errors.sink(ps.write.memory())
    assert len(pipe.graph.plan().sinks) == 2


def test_dead_letters_may_go_nowhere_when_rows_are_only_collected() -> None:
    pipe = trades().filter(PAID, on_error="dead_letter")
    assert pipe.graph.plan(pipe).collects == (Ref("filter"),)


@pytest.mark.parametrize("between", [[], ["map"], ["map", "filter", "select"]])
def test_early_results_cannot_go_to_files_however_far_below(between: list[str], tmp_path: Path) -> None:
    pipe = trades()
    results = pipe.window(MINUTE, early="1 s", name="views").aggregate(n=ps.count())
    for verb in between:
        results = {
            "map": lambda p: p.with_columns(x=col("n")),
            "filter": lambda p: p.filter(col("n") > 0),
            "select": lambda p: p.select("n", "final"),
        }[verb](results)
    results.sink(ps.write.jsonl(tmp_path / "out"), name="file")
    with pytest.raises(GraphError) as caught:
        pipe.graph.plan()
    error = caught.value
    assert error.fact == 'early results of step "views" reach sink "file", which cannot take updates'
    assert (error.step, bool(error.where)) == ("views", True)
    assert error.hint is not None
    assert '.filter(col("final"))' in error.hint


@pytest.mark.parametrize("again", ["window", "join"])
def test_early_results_cannot_be_counted_again(again: str) -> None:
    pipe = trades()
    results = pipe.window(MINUTE, early="1 s", name="views").aggregate(c=ps.count())
    if again == "window":
        results = results.window(ps.tumbling("1 h"), name="again").aggregate(most=ps.max("c"))
    else:
        results = results.join(pipe, on=ps.band("c", "n", 1), within="1 s", name="again")
    results.sink(ps.write.memory())
    with pytest.raises(GraphError) as caught:
        pipe.graph.plan()
    error = caught.value
    assert error.fact == 'early results of step "views" reach step "again", which would count them again'
    assert (error.step, bool(error.where)) == ("views", True)
    assert '.filter(col("final"))' in str(error.hint)


def test_final_results_of_an_early_window_can_be_counted_again() -> None:
    pipe = trades()
    results = pipe.window(MINUTE, early="1 s").aggregate(n=ps.count()).filter(col("final"))
    results.window(ps.tumbling("1 h")).aggregate(most=ps.max("n")).sink(ps.write.memory())
    assert len(pipe.graph.plan().steps) == 5


def test_final_results_and_late_rows_of_an_early_window_can_go_to_files(tmp_path: Path) -> None:
    pipe = trades()
    results = pipe.window(MINUTE, early="1 s", name="views").aggregate(n=ps.count())
    results.filter(col("final")).sink(ps.write.jsonl(tmp_path / "final"))
    results.late.sink(ps.write.jsonl(tmp_path / "late"))
    results.sink(ps.write.memory())
    assert len(pipe.graph.plan().sinks) == 3


def crosswise_graph() -> ps.PipeGraph:
    """Two sources with two branches each, merged crosswise: no rule of the algebra covers it."""
    graph = ps.PipeGraph("shop")
    branches = {}
    for source in ("left", "right"):
        for name in ("up", "down"):
            pipe = branches[source, name] = (
                trades(graph, name=source) if source not in graph.steps else graph[source]
            )
            branches[source, name] = pipe.filter(PAID, name=f"{source}-{name}")
    for name in ("up", "down"):
        branches["left", name].merge(branches["right", name]).sink(ps.write.memory(), name=f"{name}-sink")
    return graph


def test_a_merge_that_no_rule_covers_is_refused_naming_the_steps() -> None:
    with pytest.raises(GraphError, match="no rule merges") as caught:
        crosswise_graph().plan()
    error = caught.value
    assert error.step in ("up-sink", "down-sink")
    assert str(error.where).startswith("tests/plan/test_check.py:")
    assert "left-up" in str(error)
    assert "right-up" in str(error)
    assert error.hint


def test_the_same_merge_is_refused_by_blocks_as_well() -> None:
    with pytest.raises(GraphError, match="no rule merges"):
        crosswise_graph().blocks()


def test_accounts_balance_when_every_row_has_one_end() -> None:
    ends: dict[str, Any] = dict.fromkeys(
        ("passed", "late", "filtered", "no_window", "unfinished", "unmatched", "unrouted", "errors"), 1
    )
    assert Accounts(rows_in=8, **ends).is_balanced
    assert not Accounts(rows_in=9, **ends).is_balanced
    assert Accounts(rows_in=1, passed=1, rows_out=5).is_balanced
    assert Accounts(rows_in=2, late=2, late_by_window={"fast": 3}).to_dict()["late_by_window"] == {"fast": 3}
