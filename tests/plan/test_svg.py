from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.plan.picture import make_printable
from penstock.plan.svg import NAME_SIZE, TEXT_SIZE, cut, width_of, wrap
from tests.support import plan_graphs as graphs
from tests.support.random_plans import random_graphs

SVG = "{http://www.w3.org/2000/svg}"
GRAPHS = [graphs.campaign_views, graphs.split_and_merge, graphs.join, graphs.feedback]


def parse_svg(graph: ps.PipeGraph) -> ElementTree.Element:
    return ElementTree.fromstring(graph.explain(format="svg"))


def of_class(root: ElementTree.Element, tag: str, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter(SVG + tag) if name in element.get("class", "").split()]


def texts(root: ElementTree.Element, name: str) -> list[str]:
    return [element.text or "" for element in of_class(root, "text", name)]


def sides(rect: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def apart(a: ElementTree.Element, b: ElementTree.Element) -> bool:
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = sides(a), sides(b)
    return ax1 <= bx0 or bx1 <= ax0 or ay1 <= by0 or by1 <= ay0


@pytest.mark.slow
@given(random_graphs())
@settings(deadline=None)
def test_every_step_has_a_box_and_every_feed_a_line_and_no_two_boxes_overlap(graph: ps.PipeGraph) -> None:
    root = parse_svg(graph)
    boxes = of_class(root, "rect", "box")
    assert len(boxes) == len(graph.steps)
    assert len(of_class(root, "path", "line")) == sum(len(step.feeds) for step in graph.steps.values())
    assert all(apart(a, b) for a, b in combinations(boxes, 2))


@pytest.mark.slow
@given(random_graphs())
@settings(deadline=None)
def test_frames_hold_whole_boxes_and_do_not_cut_others(graph: ps.PipeGraph) -> None:
    root = parse_svg(graph)
    frames, boxes = of_class(root, "rect", "group"), of_class(root, "rect", "box")
    assert all(apart(a, b) for a, b in combinations(frames, 2))
    for frame in frames:
        x0, y0, x1, y1 = sides(frame)
        inside = [box for box in boxes if not apart(frame, box)]
        assert len(inside) > 1
        for left, top, right, bottom in map(sides, inside):
            assert x0 < left < right < x1
            assert y0 < top < bottom < y1


NAMES = st.text(min_size=1, max_size=60).filter(lambda name: name.strip() and name.isprintable())


@pytest.mark.slow
@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
@settings(deadline=None)
def test_whatever_the_names_the_picture_is_well_formed_and_text_stays_in_its_box(names: list[str]) -> None:
    graph = ps.PipeGraph(names[0])
    source = graph.source(ps.read.rows([], schema={"a": "int64"}), name=names[0])
    source.filter(col("a") > 0, name=names[1]).filter(col("a").is_in(list(range(99))), name=f"{names[1]}2")
    for group in parse_svg(graph).iter(SVG + "g"):
        for box in of_class(group, "rect", "box") if group.get("transform") is None else ():
            width = float(box.attrib["width"])
            assert all(width_of(text, NAME_SIZE, bold=True) < width for text in texts(group, "name"))
            assert all(width_of(text, TEXT_SIZE) < width for text in texts(group, "text"))


@pytest.mark.parametrize("make", GRAPHS)
def test_the_picture_stands_alone(make: Callable[[], ps.PipeGraph]) -> None:
    text = make().explain(format="svg")
    assert not re.search(r"href|url\(|@import|<script|<image|<foreignObject|\bid=", text)
    assert text.count("http") == 1  # the name space


def test_markup_in_names_is_text() -> None:
    graph = ps.PipeGraph('<script>alert("x")</script>')
    graph.source(ps.read.rows([], schema={"a": "int64"}), name="</text><b>&amp;")
    text = graph.explain(format="svg")
    assert "<script" not in text
    assert texts(ElementTree.fromstring(text), "name") == ["</text><b>&amp;"]


def test_the_picture_tells_its_title_and_its_steps_to_those_who_cannot_see_it() -> None:
    root = parse_svg(graphs.campaign_views())
    assert root.get("role") == "img"
    assert root.findtext(SVG + "title") == "campaign-views"
    assert root.findtext(SVG + "desc") == (
        "A graph of 6 steps: events, filter, campaigns, views, results, late-rows."
    )


def test_a_long_list_of_steps_is_cut_in_the_description() -> None:
    graph = ps.PipeGraph("g")
    pipe = graph.source(ps.read.rows([], schema={"a": "int64"}))
    for _ in range(50):
        pipe = pipe.with_columns(a=col("a"))
    assert (parse_svg(graph).findtext(SVG + "desc") or "").endswith(", with_columns-39 and 11 more.")


def test_degrees_labels_and_groups_are_drawn() -> None:
    root = parse_svg(graphs.campaign_views())
    assert texts(root, "degree") == ["×4", "×4", "×4"]
    assert texts(root, "label") == ["key by campaign_id", "late"]
    assert len(of_class(root, "rect", "group")) == 1
    assert len(of_class(root, "path", "aside")) == 2  # a line and its tip


def test_a_loop_through_a_control_port_is_drawn_around_the_picture() -> None:
    (line,) = (
        path
        for path in of_class(parse_svg(graphs.feedback()), "path", "control")
        if "line" in path.attrib["class"]
    )
    assert line.attrib["d"].count("q") == 4  # round corners


def test_labels_of_parallel_lines_do_not_cover_each_other() -> None:
    graph = ps.PipeGraph("g")
    branches: dict[str, Any] = {f"branch-{i}": col("a") > i for i in range(4)}
    first, *rest = graph.source(ps.read.rows([], schema={"a": "int64"})).split(**branches)
    first.merge(*rest).sink(ps.write.memory())
    ys = sorted(float(text.attrib["y"]) for text in of_class(parse_svg(graph), "text", "label"))
    assert all(b - a >= 18 for a, b in pairwise(ys))


def test_a_graph_without_steps_is_a_picture_too() -> None:
    assert parse_svg(ps.PipeGraph("nothing")).findtext(SVG + "desc") == "A graph without steps."


def test_both_colour_schemes_are_there() -> None:
    style = parse_svg(graphs.join()).findtext(SVG + "style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in ("ground", "name", "text", "label", "line", "tip", "box.source", "box.sink", "badge.window"):
        assert f".penstock .{name}{{" in light
        assert f".penstock .{name}{{" in dark


def test_what_fits_is_left_alone() -> None:
    assert cut("views", 100, 13) == "views"


def test_what_does_not_fit_ends_in_an_ellipsis() -> None:
    assert cut("a rather long name of a step", 80, 13) == "a rather l…"


def test_text_is_broken_at_spaces_and_the_last_line_is_cut() -> None:
    lines = wrap("sliding 10 s every 1 s, tumbling 1 min, session", 110, 11, lines=2)
    assert lines == ["sliding 10 s every", "1 s, tumbling 1…"]


def test_a_word_too_long_for_a_line_is_cut_where_it_stands() -> None:
    assert wrap("a" * 50, 40, 10, lines=2) == ["aaaa…"]


def test_no_text_has_no_lines() -> None:
    assert wrap("  ", 40, 10, lines=2) == []


def test_bold_text_and_ideographs_are_wider() -> None:
    assert width_of("views", 13, bold=True) > width_of("views", 13)
    assert width_of("窓", 13) > width_of("w", 13)


def test_control_characters_become_visible_and_line_ends_become_spaces() -> None:
    assert make_printable("a\nb\tc\x00d\x1be") == "a b c\ufffdd\ufffde"
    assert make_printable("日本 🚀 ×4") == "日本 🚀 ×4"


@given(st.text(max_size=80), st.floats(20, 300))
def test_cut_text_is_never_wider_than_its_room(text: str, width: float) -> None:
    assert width_of(cut(text, width, 11), 11) <= width


@given(st.text("ab cd ef", max_size=120), st.floats(30, 300), st.integers(1, 3))
def test_wrapped_lines_are_few_and_fit_and_keep_the_words_in_order(text: str, width: float, n: int) -> None:
    lines = wrap(text, width, 11, lines=n)
    assert len(lines) <= n
    assert all(width_of(line, 11) <= width for line in lines)
    assert text.replace(" ", "").startswith("".join(lines).replace(" ", "").rstrip("…"))
