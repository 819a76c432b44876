"""What a checkpoint remembers of a graph: another number of replicas is not another step."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.connect.writers.program import Memory
from penstock.engines.checkpoint.graph import describe_graph
from penstock.timing.windows import WindowSpec

ROWS = [{"t": i, "v": i} for i in range(60)]


def graph(window: WindowSpec, degree: int) -> tuple[ps.PipeGraph, Memory]:
    """Windows without a key, for which the pattern is chosen by the number of replicas."""
    graph, sink = ps.PipeGraph("counts"), ps.write.memory()
    rows = graph.source(ps.read.rows(ROWS, batch=10), time="t", time_unit="us", delay=0, name="rows")
    counts = rows.window(window, parallelism=degree, name="w").aggregate(n=ps.count(), s=ps.sum("v"))
    counts.sink(sink, name="kept")
    return graph, sink


@pytest.mark.parametrize("window", [ps.tumbling(10), ps.sliding(10, 5)])
def test_a_pattern_that_was_chosen_for_other_replicas_is_described_the_same(window: WindowSpec) -> None:
    one, three = (graph(window, degree)[0].plan() for degree in (1, 3))
    assert one["w"].op.kind != three["w"].op.kind
    assert describe_graph(one) == describe_graph(three)


@pytest.mark.parametrize("window", [ps.tumbling(10), ps.sliding(10, 5)])
@pytest.mark.parametrize("degrees", [(1, 3), (3, 1), (2, 4)])
def test_windows_without_a_key_go_on_with_another_number_of_replicas(
    tmp_path: Path, window: WindowSpec, degrees: tuple[int, int]
) -> None:
    whole, wanted = graph(window, 1)
    whole.run("reference")
    result = []
    for degree, until in zip(degrees, (3, None), strict=True):
        part, sink = graph(window, degree)
        part.run("local", checkpoint=str(tmp_path), until=until, drain=True)
        result += sink.rows()
    assert sorted(result, key=str) == sorted(wanted.rows(), key=str)
