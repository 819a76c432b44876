from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.layout import GAP, Edge, Layout, Node, Place, assign_layers, lay_out
from tests.support.random_edges import random_edges

BOX = Node(width=100, height=50, enter=25, leave=25)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[Edge], Layout]:
    n, edges = draw(random_edges())
    size = st.sampled_from([40.0, 60.0, 200.0])
    nodes = [Node(draw(size), height := draw(size), 20.0, height - 20.0) for _ in range(n)]
    return edges, lay_out(nodes, edges)


def apart(a: Place, b: Place) -> bool:
    beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    return beside or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_a_line_of_steps_is_level() -> None:
    layout = lay_out([BOX] * 3, [Edge(0, 1), Edge(1, 2)])
    assert {place.y for place in layout.places} == {0.0}
    assert [route.points[0][1] for route in layout.routes] == [25.0, 25.0]


def test_two_readers_stand_evenly_around_what_they_read() -> None:
    first, upper, lower = lay_out([BOX] * 3, [Edge(0, 1), Edge(0, 2)]).places
    assert lower.y - upper.y == 50 + GAP
    assert first.y == (upper.y + lower.y) / 2


def test_the_boxes_of_a_layer_are_as_wide_as_its_widest() -> None:
    places = lay_out([BOX, BOX, Node(180, 50, 25, 25)], [Edge(0, 1), Edge(0, 2)]).places
    assert [place.width for place in places] == [100, 180, 180]


def test_a_label_makes_room_for_itself() -> None:
    first, second = lay_out([BOX] * 2, [Edge(0, 1, label_width=150)]).places
    assert second.x - (first.x + first.width) == 150


def test_nothing_has_no_size() -> None:
    assert lay_out([], []) == Layout(0.0, 0.0, (), ())


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_no_two_boxes_overlap_and_all_are_inside(made: tuple[list[Edge], Layout]) -> None:
    _, layout = made
    assert all(apart(a, b) for a, b in combinations(layout.places, 2))
    assert all(place.x >= 0 and place.y >= 0 for place in layout.places)
    assert all(place.x + place.width <= layout.width for place in layout.places)
    assert all(place.y + place.height <= layout.height for place in layout.places)


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_every_line_leaves_its_tail_on_the_right_and_enters_its_head_on_the_left(
    made: tuple[list[Edge], Layout],
) -> None:
    edges, layout = made
    for edge, route in zip(edges, layout.routes, strict=True):
        tail, head = layout.places[edge.tail], layout.places[edge.head]
        (x0, y0), (x1, y1) = route.points[0], route.points[-1]
        assert (x0, x1) == (tail.x + tail.width, head.x)
        assert tail.y <= y0 <= tail.y + tail.height
        assert head.y <= y1 <= head.y + head.height


@pytest.mark.slow
@given(layouts())
@settings(deadline=None)
def test_no_line_passes_over_a_box(made: tuple[list[Edge], Layout]) -> None:
    _, layout = made
    for route in layout.routes:
        for (x0, y0), (x1, y1) in zip(route.points, route.points[1:], strict=False):
            # A curve stays between two layers and within the heights of its ends; a straight piece is itself.
            left, right, upper, lower = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
            for place in layout.places:
                beside = right <= place.x or left >= place.x + place.width
                assert beside or lower < place.y or upper > place.y + place.height


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
