from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.layout import GAP, Edge, Layout, Node, assign_layers, lay_out
from tests.support.random_edges import random_edges

Drawing = tuple[list[Node], list[Edge], Layout]


def boxes(n: int) -> list[Node]:
    return [Node(width=100, height=50, enter=25, leave=25) for _ in range(n)]


@st.composite
def layouts(draw: st.DrawFn) -> Drawing:
    n, edges = draw(random_edges())
    size = st.sampled_from([40.0, 60.0, 200.0])
    nodes = [Node(draw(size), height := draw(size), 20.0, height - 20.0) for _ in range(n)]
    return nodes, edges, lay_out(nodes, edges)


def apart(a: Node, b: Node) -> bool:
    beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    return beside or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_a_line_of_steps_is_level() -> None:
    nodes = boxes(3)
    layout = lay_out(nodes, [Edge(0, 1), Edge(1, 2)])
    assert {node.y for node in nodes} == {0.0}
    assert [points[0][1] for points in layout.lines] == [25.0, 25.0]


def test_two_readers_stand_evenly_around_what_they_read() -> None:
    first, upper, lower = nodes = boxes(3)
    lay_out(nodes, [Edge(0, 1), Edge(0, 2)])
    assert lower.y - upper.y == 50 + GAP
    assert first.y == (upper.y + lower.y) / 2


def test_the_boxes_of_a_layer_are_as_wide_as_its_widest() -> None:
    nodes = [*boxes(2), Node(180, 50, 25, 25)]
    lay_out(nodes, [Edge(0, 1), Edge(0, 2)])
    assert [node.width for node in nodes] == [100, 180, 180]


def test_a_label_makes_room_for_itself() -> None:
    first, second = nodes = boxes(2)
    lay_out(nodes, [Edge(0, 1, label_width=150)])
    assert second.x - (first.x + first.width) == 150


def test_nothing_has_no_size() -> None:
    assert lay_out([], []) == Layout(0.0, 0.0, ())


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_no_two_boxes_overlap_and_all_are_inside(drawing: Drawing) -> None:
    nodes, _, layout = drawing
    assert all(apart(a, b) for a, b in combinations(nodes, 2))
    assert all(place.x >= 0 and place.y >= 0 for place in nodes)
    assert all(place.x + place.width <= layout.width for place in nodes)
    assert all(place.y + place.height <= layout.height for place in nodes)


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_every_line_leaves_its_tail_on_the_right_and_enters_its_head_on_the_left(
    drawing: Drawing,
) -> None:
    nodes, edges, layout = drawing
    for edge, points in zip(edges, layout.lines, strict=True):
        tail, head = nodes[edge.tail], nodes[edge.head]
        (x0, y0), (x1, y1) = points[0], points[-1]
        assert (x0, x1) == (tail.x + tail.width, head.x)
        assert tail.y <= y0 <= tail.y + tail.height
        assert head.y <= y1 <= head.y + head.height


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_no_line_passes_over_a_box(drawing: Drawing) -> None:
    nodes, _, layout = drawing
    for points in layout.lines:
        for (x0, y0), (x1, y1) in pairwise(points):
            # A curve stays between two layers and within the heights of its ends; a straight piece is itself.
            left, right, upper, lower = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
            for place in nodes:
                beside = right <= place.x or left >= place.x + place.width
                assert beside or lower < place.y or upper > place.y + place.height


def line(*nodes: int) -> list[Edge]:
    return [Edge(tail, head) for tail, head in pairwise(nodes)]


def test_a_node_stands_one_layer_after_the_last_of_its_feeds_and_a_line_past_others_goes_around() -> None:
    #  0 -> 1 -> 2 -> 3
    #       1 ------> 3
    nodes = boxes(4)
    layout = lay_out(nodes, [*line(0, 1, 2, 3), Edge(1, 3)])
    assert [node.layer for node in nodes] == [0, 1, 2, 3]
    assert [len(points) for points in layout.lines] == [2, 2, 2, 6]


def test_a_short_line_from_a_source_stands_close_to_its_reader() -> None:
    #  0 -> 1 -> 2 -> 5,   3 -> 4 -> 5
    nodes = boxes(6)
    assign_layers(nodes, [*line(0, 1, 2, 5), *line(3, 4, 5)])
    assert [node.layer for node in nodes] == [0, 1, 2, 1, 2, 3]


def test_crossings_that_need_not_be_are_undone() -> None:
    #  0 -> 3, 1 -> 2: written crosswise
    nodes = boxes(4)
    lay_out(nodes, [Edge(0, 3), Edge(1, 2)])
    assert nodes[0].y == nodes[3].y < nodes[1].y == nodes[2].y


def test_what_only_late_rows_lead_to_stands_below() -> None:
    nodes = boxes(3)
    lay_out(nodes, [Edge(0, 1, aside=True), Edge(0, 2)])
    assert nodes[2].y < nodes[1].y


def test_an_edge_that_runs_backwards_goes_around_below() -> None:
    nodes = boxes(2)
    layout = lay_out(nodes, [Edge(0, 1), Edge(1, 0), Edge(1, 1)])
    assert [len(points) for points in layout.lines] == [2, 6, 6]
    assert all(points[2][1] > 50 for points in layout.lines[1:])


def test_nothing_has_no_layers() -> None:
    assert assign_layers([], []) == []


@given(random_edges())
@settings(deadline=None)
def test_every_line_to_a_later_node_goes_right_and_every_node_stands_once(
    given_: tuple[int, list[Edge]],
) -> None:
    n, edges = given_
    nodes = boxes(n)
    layers = assign_layers(nodes, edges)
    assert sorted(map(id, (node for layer in layers for node in layer))) == sorted(map(id, nodes))
    for edge in edges:
        assert edge.tail >= edge.head or nodes[edge.tail].layer < nodes[edge.head].layer
