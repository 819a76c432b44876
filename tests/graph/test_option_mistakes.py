"""Options of steps that make no sense: degrees, batch sizes, error policies, routings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock import GraphError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

PAID = col("paid")


def keep(row: Any, seen: Any) -> bool:
    return True


def add_filter(**options: Any) -> Callable[[Any], object]:
    """Adds a filter with some options."""
    return lambda p: p.filter(PAID, **options)


OPTIONS = [
    *(
        Mistake(
            f"parallelism={value!r}",
            add_filter(parallelism=value),
            GraphError,
            f"parallelism={value!r} is not a number of replicas",
            "filter",
            also='"auto"',
        )
        for value in (0, -1, True, 1.5, "many", (2, 1), (0, 2), (True, 2), (1, 2, 3), [1, "x"])
    ),
    *(
        Mistake(
            f"batch_size={value!r}",
            add_filter(batch_size=value),
            GraphError,
            f"batch_size={value!r} is not a number of rows",
            "filter",
        )
        for value in (0, -5, True, 2.5, "10")
    ),
    *(
        Mistake(
            f"dedicated={value!r}",
            add_filter(dedicated=value),
            GraphError,
            f"dedicated={value!r} is neither True nor False",
            "filter",
            also="use dedicated=True",
        )
        for value in (1, "slow")
    ),
    *(
        Mistake(
            f"on_error={value!r}",
            add_filter(on_error=value),
            GraphError,
            f"on_error={value!r} is unknown",
            "filter",
            also='"fail", "skip", "dead_letter"',
        )
        for value in ("ignore", None, "")
    ),
    *(
        Mistake(
            f"routing={value!r}",
            add_filter(routing=value),
            GraphError,
            f"routing={value!r} is unknown",
            "filter",
            also='"forward", "key_by", "broadcast", "rebalance"',
        )
        for value in ("keyby", "complex", 3)
    ),
]


@pytest.mark.parametrize("mistake", OPTIONS, ids=str)
def test_an_option_that_makes_no_sense_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


ROUTINGS = [
    Mistake(
        "elastic copies",
        lambda p: p.filter(PAID, routing="broadcast", parallelism=(1, 4)),
        GraphError,
        "a broadcast step cannot be elastic",
        "filter",
    ),
    Mistake(
        "by key without a key",
        lambda p: p.filter(PAID, routing="key_by"),
        GraphError,
        'routing="key_by" needs a key',
        "filter",
    ),
    Mistake(
        "state dealt out in turn",
        lambda p: p.key_by("user").filter(keep, state=set, routing="rebalance"),
        GraphError,
        'routing="rebalance" cannot be had here: filter is routed by "key_by"',
        "filter",
    ),
    Mistake(
        "windows copied to all",
        lambda p: p.add(
            ps.KeyedWindows(ps.tumbling("1 s"), {"n": ps.count()}, routing="broadcast", key="user")
        ),
        GraphError,
        'window is routed by "key_by"',
        "window",
    ),
]


@pytest.mark.parametrize("mistake", ROUTINGS, ids=str)
def test_a_routing_that_contradicts_the_step_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_a_step_that_was_refused_leaves_nothing_behind() -> None:
    pipe = trades()
    with pytest.raises(GraphError):
        pipe.filter(PAID, parallelism=0)
    with pytest.raises(GraphError):
        pipe.split(lambda row: 0, 2)["0"].split(lambda row: 0, 1)
    with pytest.raises(ps.SchemaError):
        pipe.key_by("nobody", big=col("n") > 9)
    assert pipe.filter(PAID).feeds[0].step == "filter"
    assert tuple(pipe.graph.steps) == ("trades", "split", "filter")


def test_a_sink_has_no_policy_for_errors() -> None:
    with pytest.raises(GraphError, match='on_error="skip" is not for a sink'):
        ps.Sink(ps.write.memory(), on_error="skip")
