from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from penstock.plan.drawing.layout import Edge, assign_layers
from tests.support.random_edges import random_edges


def line(*nodes: int) -> list[Edge]:
    return [Edge(tail, head) for tail, head in pairwise(nodes)]


def test_a_node_stands_one_layer_after_the_last_of_its_feeds() -> None:
    #  0 -> 1 -> 2 -> 3
    #       1 ------> 3
    layers = assign_layers(4, [*line(0, 1, 2, 3), Edge(1, 3)])
    assert layers.layer[:4] == [0, 1, 2, 3]
    assert layers.paths[3] == [1, 4, 3]  # through one point, in the layer of 2


def test_a_short_line_from_a_source_stands_close_to_its_reader() -> None:
    #  0 -> 1 -> 2 -> 5,   3 -> 4 -> 5
    assert assign_layers(6, [*line(0, 1, 2, 5), *line(3, 4, 5)]).layer == [0, 1, 2, 1, 2, 3]


def test_crossings_that_need_not_be_are_undone() -> None:
    #  0 -> 3, 1 -> 2: written crosswise
    layers = assign_layers(4, [Edge(0, 3), Edge(1, 2)])
    assert layers.order == [[0, 1], [3, 2]]


def test_what_only_late_rows_lead_to_stands_below() -> None:
    layers = assign_layers(3, [Edge(0, 1, aside=True), Edge(0, 2)])
    assert layers.order == [[0], [2, 1]]


def test_an_edge_that_runs_backwards_goes_around() -> None:
    assert assign_layers(2, [Edge(0, 1), Edge(1, 0), Edge(1, 1)]).paths == [[0, 1], None, None]


def test_nothing_has_no_layers() -> None:
    assert assign_layers(0, []).order == []


@given(random_edges())
@settings(deadline=None)
def test_every_line_goes_right_one_layer_at_a_time_and_every_vertex_stands_once(
    given_: tuple[int, list[Edge]],
) -> None:
    n, edges = given_
    layers = assign_layers(n, edges)
    for path in layers.paths:
        steps = [layers.layer[vertex] for vertex in path or ()]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True
    assert sorted(v for order in layers.order for v in order) == list(range(len(layers.layer)))
