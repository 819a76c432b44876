"""Joins drawn at random: engines agree on rows, late rows, failed pairs and accounts, whatever the layout."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

import penstock as ps
from penstock.testing import assert_engines_agree
from penstock.testing.strategies import cuts
from tests.conformance.law import law

FEATURE = "Joins, drawn at random"
pytestmark = pytest.mark.slow
SCHEMA = {"t": "int64", "key": "string", "v": "int64", "f": "float64"}
NAN = float("nan")


def divide(left: Any, right: Any) -> bool:
    """Fail where the right value is 0 or null."""
    return bool(left.v // right.v_right > 0) if left.v is not None else False


def divide_batches(left: Any, right: Any) -> Any:
    """The same of batches, which fail as a whole."""
    import pyarrow as pa

    pairs = zip(left.column("v").to_pylist(), right.column("v_right").to_pylist(), strict=True)
    return pa.array([None if x is None else x // y > 0 for x, y in pairs], pa.bool_())


ON: list[Any] = [
    ps.equal("key", "key_right"),
    ps.equal("f", "f_right"),
    ps.band("v", "v_right", 2),
    ps.band("v", "f_right", 1.5, strict=True),
    ps.band("f", "f_right", 0.25),
    ps.left("v") // ps.right("v_right") > 0,
    divide,
    ps.batch(divide_batches),
]


@st.composite
def rows(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Rows in disorder, cut into batches."""
    row = st.fixed_dictionaries(
        {
            "t": st.integers(-6, 10),
            "key": st.sampled_from(["a", "b", None]),
            "v": st.one_of(st.none(), st.integers(-3, 3)),
            "f": st.sampled_from([None, NAN, -0.0, 0.0, 0.25, 0.5, 1e300, float("inf")]),
        }
    )
    return draw(cuts(draw(st.lists(row, max_size=12))))


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """What a join may be told."""
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    bound: dict[str, Any] = draw(
        st.one_of(
            st.builds(lambda a, b: {"within": (a, b)}, st.integers(0, 5), st.integers(0, 5)),
            st.builds(lambda n: {"window": ps.tumbling(n)}, st.integers(1, 6)),
            st.builds(lambda n, k: {"window": ps.sliding(n, every=k)}, st.integers(1, 6), st.integers(1, 6)),
            st.builds(lambda a, b: {"last_rows": (a, b)}, st.integers(1, 3), st.integers(1, 3)),
        )
    )
    if "last_rows" in bound and how != "inner":
        n = bound["last_rows"][0]
        how = "right" if how in ("right", "full") else how
        bound = {"last_rows": (n, 0) if how == "right" else (0, n)}
    return {
        **bound,
        "how": how,
        "on": draw(st.lists(st.sampled_from(ON), min_size=1, max_size=3, unique_by=str)),
        "lateness": draw(st.integers(0, 2)),
        "layout": draw(st.sampled_from(["auto", (1, 1), (2, 1), (1, 3), (2, 2)])),
        "on_error": draw(st.sampled_from(["skip", "dead_letter"])),
    }


def graph_of(batches: Any, given_options: dict[str, Any], delay: int) -> ps.PipeGraph:
    """One join, and sinks for all that leaves it."""
    graph = ps.PipeGraph("joins")
    left, right = (
        graph.source(ps.read.batches(part, schema=SCHEMA), time="t", time_unit="s", delay=delay, name=name)
        for part, name in zip(batches, ("left", "right"), strict=True)
    )
    renamed = right.select(**{f"{name}_right": ps.col(name) for name in SCHEMA})
    joined = left.join(renamed, name="joined", **given_options)
    joined.sink(ps.write.memory())
    joined.late.sink(ps.write.memory())
    joined.late_right.sink(ps.write.memory())
    if given_options["on_error"] == "dead_letter":
        joined.errors.sink(ps.write.memory())
    return graph


@law(150, batches=st.tuples(rows(), rows()), given_options=options(), delay=st.integers(0, 4))
def test_engines_agree_on_any_join(
    engine: str, batches: Any, given_options: dict[str, Any], delay: int
) -> None:
    assert_engines_agree(graph_of(batches, given_options, delay), ["reference", engine])
