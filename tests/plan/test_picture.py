from __future__ import annotations

import penstock as ps
from penstock import col
from penstock.plan.picture import Line, LineKind, Picture, Shape, build_picture
from penstock.plan.plan import Plan
from tests.support import plan_graphs as graphs


def draw(graph: ps.PipeGraph) -> Picture:
    return build_picture(Plan(graph.name, tuple(graph.steps.values())))


def lines(picture: Picture) -> list[tuple[str, str, str, LineKind]]:
    names = [box.name for box in picture.boxes]

    def describe_line(line: Line) -> tuple[str, str, str, LineKind]:
        return names[line.tail], names[line.head], line.label, line.kind

    return [describe_line(line) for line in picture.lines]


def test_the_campaign_views_have_a_keyed_edge_a_plain_one_and_a_late_one() -> None:
    assert lines(draw(graphs.campaign_views())) == [
        ("events", "filter", "", LineKind.ROWS),
        ("filter", "campaigns", "", LineKind.ROWS),
        ("campaigns", "views", "key by campaign_id", LineKind.ROWS),
        ("views", "results", "", LineKind.ROWS),
        ("views", "late-rows", "late", LineKind.ASIDE),
    ]


def test_boxes_say_in_few_words_what_their_step_does() -> None:
    boxes = {box.name: box for box in draw(graphs.campaign_views()).boxes}
    assert boxes["filter"].text == 'event_type == "view"'
    assert boxes["campaigns"].text == "table (2 rows) on ad_id"
    assert boxes["views"].text == "sliding 10 s every 1 s"
    assert boxes["results"].text == "write memory"
    assert boxes["views"].degree == "×4"
    assert boxes["filter"].degree == ""


def test_a_selected_column_is_named_once() -> None:
    graph = ps.PipeGraph("g")
    graph.source(ps.read.rows([], schema={"a": "int64"})).select("a", twice=col("a") * 2)
    assert draw(graph).boxes[1].text == "a, twice=a * 2"


def test_shapes_follow_the_operators() -> None:
    drawings = [draw(make()) for make in (graphs.join, graphs.split_and_merge, graphs.campaign_views)]
    shapes = {box.name: box.shape for picture in drawings for box in picture.boxes}
    assert shapes["bids"] is Shape.SOURCE
    assert shapes["pairs"] is shapes["campaigns"] is Shape.JOIN
    assert shapes["kinds"] is Shape.SPLIT
    assert shapes["views"] is Shape.WINDOW
    assert shapes["dear"] is Shape.STEP
    assert shapes["both"] is Shape.SINK


def test_the_ports_of_a_join_label_its_edges_instead_of_the_routing() -> None:
    result = lines(draw(graphs.join()))
    assert ("bids", "pairs", "left", LineKind.ROWS) in result
    assert ("select", "pairs", "right", LineKind.ROWS) in result


def test_a_branch_that_is_keyed_says_both() -> None:
    graph = ps.PipeGraph("g")
    source = graph.source(ps.read.rows([], schema=graphs.EVENTS), time="event_time", delay="1 s")
    split = source.split(view=col("price") > 1, rest=col("price") <= 1)
    split["view"].key_by("ad_id").window(ps.tumbling("1 min"), pattern="parallel").aggregate(n=ps.count())
    split["rest"].key_by("ad_id").window(ps.session("1 min")).aggregate(n=ps.count())
    assert [label for *_, label, _ in lines(draw(graph))] == ["", "view · by window", "rest · key by ad_id"]


def test_feedback_is_a_control_line_to_an_earlier_box() -> None:
    assert ("doubled", "limiter", "limit", LineKind.CONTROL) in lines(draw(graphs.feedback()))
