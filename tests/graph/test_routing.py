"""How rows reach a step, how many replicas it has, and whether it is fused with the one before it."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock import col
from penstock.operators.op import Degree, Routing
from tests.support.trades import TRADES, trades

PAID = col("paid")
SECOND = ps.tumbling("1 s")


def keep(row: Any, seen: Any) -> bool:
    return True


def routes(pipe: ps.MultiPipe) -> dict[str, tuple[str | None, str, bool]]:
    """Step -> (routing, degree, fused)."""
    return {step.name: (step.routing, str(step.degree), step.fuse) for step in pipe.graph.steps.values()}


def test_a_source_has_one_replica_and_no_routing_unless_told() -> None:
    assert routes(trades())["trades"] == (None, "1", False)
    assert routes(trades(parallelism=3))["trades"] == (None, "3", False)


def test_steps_take_over_the_degree_of_the_step_before_and_are_fused_with_it() -> None:
    pipe = trades(parallelism=3)
    pipe.filter(PAID).with_columns(x=col("n")).sink(ps.write.memory())
    assert list(routes(pipe).values())[1:] == [("forward", "3", True)] * 3


def test_another_degree_is_a_stage_of_its_own_and_the_next_step_takes_it_over() -> None:
    pipe = trades()
    pipe.filter(PAID, parallelism=4).with_columns(x=col("n"))
    assert routes(pipe)["filter"] == ("forward", "4", False)
    assert routes(pipe)["with_columns"] == ("forward", "4", True)


def test_a_degree_may_be_a_range_or_left_to_the_engine() -> None:
    pipe = trades()
    pipe.filter(PAID, parallelism=(2, 8)).with_columns(x=col("n"), parallelism="auto")
    assert pipe.graph.steps["filter"].degree == Degree(2, 8)
    assert pipe.graph.steps["with_columns"].degree == Degree(1, 64)
    assert str(pipe.graph.steps["filter"].degree) == "2..8"


def test_key_by_takes_effect_at_the_first_step_that_needs_the_key() -> None:
    pipe = trades(parallelism=2)
    pipe.key_by("user").filter(PAID).with_columns(x=col("n")).window(SECOND).aggregate(n=ps.count())
    assert [route[0] for route in routes(pipe).values()] == [None, "forward", "forward", "key_by"]


def test_rows_that_are_together_already_are_not_shuffled_again() -> None:
    pipe = trades(parallelism=2)
    counts = pipe.key_by("user").window(SECOND).aggregate(n=ps.count()).filter(col("n") > 1)
    counts.window(ps.tumbling("1 min"), name="longer").aggregate(m=ps.max("n"))
    assert routes(pipe)["window"][0] == "key_by"
    assert routes(pipe)["longer"][0] == "forward"


def test_another_key_another_degree_or_a_merge_shuffles_again() -> None:
    pipe = trades(parallelism=2)
    keyed = pipe.key_by("user").filter(keep, state=set)
    keyed.key_by("item").filter(keep, state=set, name="by item")
    keyed.filter(keep, state=set, parallelism=3, name="three")
    keyed.merge(trades(pipe.graph, name="more", parallelism=2).key_by("user")).filter(
        keep, state=set, name="both"
    )
    keyed.filter(keep, state=set, name="same")
    routings = {name: route[0] for name, route in routes(pipe).items()}
    assert (routings["by item"], routings["three"], routings["both"]) == ("key_by", "key_by", "key_by")
    assert routings["same"] == "forward"


def test_a_shuffle_that_is_asked_for_by_name_is_had_even_if_it_could_be_spared() -> None:
    pipe = trades(parallelism=2)
    keyed = pipe.key_by("user").filter(keep, state=set)
    keyed.filter(keep, state=set, routing="key_by", name="again")
    assert routes(pipe)["again"] == ("key_by", "2", False)


def test_dealing_rows_out_in_between_undoes_the_grouping() -> None:
    pipe = trades(parallelism=2)
    keyed = pipe.key_by("user").filter(keep, state=set)
    keyed.filter(PAID, routing="rebalance", name="dealt").filter(keep, state=set, name="again")
    assert routes(pipe)["dealt"] == ("rebalance", "2", False)
    assert routes(pipe)["again"][0] == "key_by"


def test_a_keyed_window_without_a_key_has_one_owner() -> None:
    pipe = trades(parallelism=4)
    pipe.window(SECOND, pattern="keyed").aggregate(n=ps.count())
    assert routes(pipe)["window"] == ("key_by", "1", False)


def test_a_window_without_a_key_is_spread_in_a_way_that_needs_none() -> None:
    pipe = trades(parallelism=4)
    pipe.window(SECOND).aggregate(n=ps.count())
    assert routes(pipe)["window"] == (Routing.COMPLEX, "4", False)


def test_a_window_that_can_be_spread_by_key_only_has_one_owner_where_there_is_no_key() -> None:
    pipe = trades(parallelism=4)
    pipe.window(ps.session("1 s")).aggregate(n=ps.count())
    assert routes(pipe)["window"] == ("key_by", "1", False)


def test_other_patterns_route_rows_in_their_own_way_at_any_degree() -> None:
    for pattern in ("parallel", "paned", "map_reduce"):
        pipe = trades(parallelism=4)
        pipe.window(SECOND, pattern=pattern).aggregate(n=ps.count())
        assert routes(pipe)["window"] == (Routing.COMPLEX, "4", False)


def test_a_join_has_as_many_workers_as_its_layout() -> None:
    pipe = trades()
    pipe.join(pipe, on="user", within="1 s", suffix="_r", layout=(2, 3))
    assert routes(pipe)["join"] == ("complex", "6", False)


def test_without_chaining_no_step_is_fused() -> None:
    graph = ps.PipeGraph("shop", chaining=False)
    graph.source(ps.read.rows([], schema=TRADES)).filter(PAID).with_columns(x=col("n")).sink(
        ps.write.memory()
    )
    assert not any(step.fuse for step in graph.steps.values())


def test_add_asks_for_a_stage_of_its_own_and_chain_for_fusion_whatever_the_graph_says() -> None:
    for chaining in (True, False):
        graph = ps.PipeGraph("shop", chaining=chaining)
        pipe = graph.source(ps.read.rows([], schema=TRADES))
        pipe.add(ps.Filter(PAID)).chain(ps.Filter(PAID)).chain(ps.Filter(PAID, parallelism=2))
        assert [step.fuse for step in graph.steps.values()] == [False, False, True, False]


def test_windows_accumulators_joins_and_own_loops_are_never_fused() -> None:
    pipe = trades().key_by("user")
    pipe.chain(ps.KeyedWindows(SECOND, {"n": ps.count()}))
    pipe.chain(ps.Accumulate(lambda row, s: s, 0, {"c": "int64"}))
    same = pipe.filter(keep, state=set)
    same.chain(ps.Accumulate(lambda row, s: s, 0, {"c": "int64"}, name="settled"))
    assert routes(pipe)["settled"] == ("forward", "1", False)
    assert not any(routes(pipe)[name][2] for name in ("window", "accumulate"))


def test_the_step_after_a_merge_is_not_fused() -> None:
    pipe = trades()
    pipe.merge(trades(pipe.graph, name="more")).filter(PAID)
    assert routes(pipe)["filter"] == ("forward", "1", False)


def test_a_broadcast_step_gets_every_row_in_every_replica() -> None:
    pipe = trades()
    pipe.filter(PAID, routing="broadcast", parallelism=3)
    assert routes(pipe)["filter"] == ("broadcast", "3", False)
