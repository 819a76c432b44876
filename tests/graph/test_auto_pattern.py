"""What pattern="auto" becomes when a window is written, and that the plan knows why."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.blocks import count
from penstock.operators.windows import Windows
from tests.support.trades import trades

SLIDING = ps.sliding("10 s", every="1 s")
TUMBLING = ps.tumbling("10 s")


def window_of(pipe: ps.MultiPipe) -> Windows:
    pipe.sink(ps.write.memory())
    op = pipe.graph.plan()["window"].op
    assert isinstance(op, Windows)
    return op


def seen(rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows)}


def test_one_replica_is_keyed_whatever_the_window() -> None:
    for spec in (SLIDING, TUMBLING, ps.session("1 s"), ps.count_window(3)):
        op = window_of(trades().window(spec).aggregate(n=ps.count()))
        assert (type(op), op.because) == (ps.KeyedWindows, "there is one replica")


def test_keys_spread_the_rows() -> None:
    op = window_of(trades().key_by("user").window(SLIDING, parallelism=4).aggregate(n=ps.count()))
    assert type(op) is ps.KeyedWindows
    assert op.because == "the keys (user) spread the rows, and nothing is combined after"


@pytest.mark.parametrize("parallelism", [4, (1, 8), "auto"])
def test_without_a_key_overlap_decides(parallelism: Any) -> None:
    op = window_of(trades().window(SLIDING, parallelism=parallelism).aggregate(n=ps.count()))
    assert type(op) is ps.PanedWindows
    op = window_of(trades().window(TUMBLING, parallelism=parallelism).aggregate(n=ps.count()))
    assert type(op) is ps.MapReduceWindows


def test_a_window_takes_over_the_replicas_before_it() -> None:
    assert type(window_of(trades(parallelism=3).window(SLIDING).aggregate(n=ps.count()))) is ps.PanedWindows
    one = trades(parallelism=3).window(SLIDING, parallelism=1).aggregate(n=ps.count())
    assert type(window_of(one)) is ps.KeyedWindows


def test_what_needs_whole_windows_is_dealt_by_window() -> None:
    op = window_of(trades().window(SLIDING, parallelism=2).aggregate(users=ps.collect("user")))
    assert type(op) is ps.ParallelWindows
    op = window_of(trades().window(SLIDING, parallelism=2).apply(seen, schema={"n": "int64"}))
    assert type(op) is ps.ParallelWindows
    assert op.function is not None
    assert op.because == "there is no key, and results are made from the rows of whole windows"


def test_a_named_pattern_that_cannot_take_the_windows_becomes_keyed_and_the_plan_says_why() -> None:
    for windows in (ps.session("1 s"), ps.count_window(3)):
        op = window_of(trades().window(windows, pattern="paned", parallelism=2).aggregate(n=ps.count()))
        assert op.pattern == "keyed"
        assert op.because is not None
        assert op.because.startswith('pattern="paned" was asked for, but for ')
        assert op.because.endswith("so windows cannot be sent to replicas")


def test_a_pattern_that_is_named_has_no_reason() -> None:
    op = window_of(trades().window(SLIDING, pattern="paned", parallelism=2).aggregate(n=ps.count()))
    assert (type(op), op.because) == (ps.PanedWindows, None)


def test_a_chosen_pattern_looks_like_the_same_one_named() -> None:
    graphs = []
    for pattern in ("auto", "paned"):
        pipe = trades().window(SLIDING, pattern=pattern, parallelism=4).aggregate(n=ps.count())
        pipe.sink(ps.write.memory())
        graphs.append(pipe.graph)
    chosen, named = graphs
    assert chosen.blocks() == named.blocks()
    assert count(chosen.blocks()) == count(named.blocks())
    assert chosen.explain(format="mermaid") == named.explain(format="mermaid")
    assert "by pane" in chosen.explain(format="mermaid")
    assert chosen.derivation() == named.derivation()
