"""The look of the SVG picture: colours for light and for dark pages, and sizes of text.

The picture brings its own ground, so it is readable on any page, and follows the reader's colour scheme
where the viewer knows it. Every rule is below `.penstock`, so that an inlined picture styles nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from penstock.frozen import dataclass
from penstock.plan.drawing.layout import Edge, Layout, Node, Place, Point, Route, lay_out
from penstock.plan.drawing.picture import (
    Box,
    Line,
    Manner,
    Picture,
    Shape,
    cut,
    picture_of,
    printable,
    width_of,
    wrapped,
)
from penstock.plan.plan import Plan

NAME_SIZE, TEXT_SIZE, LABEL_SIZE, TITLE_SIZE = 13.0, 11.0, 11.0, 15.0

_FONT = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, '
    "sans-serif"
)

# ground, ground's edge, strong text, soft text, lines, groups, aside
_LIGHT = ("#ffffff", "#d8dee4", "#1f2328", "#59636e", "#6e7781", "#8c959f", "#bc4c00")
_DARK = ("#0d1117", "#30363d", "#f0f6fc", "#9da7b3", "#8b949e", "#6e7681", "#f0883e")

# fill and edge of each shape
_LIGHT_SHAPES = {
    Shape.SOURCE: ("#e6f6ec", "#2da44e"),
    Shape.SINK: ("#fbeaf4", "#bf3989"),
    Shape.SPLIT: ("#e2f5f5", "#1b8a8f"),
    Shape.WINDOW: ("#e3effd", "#0969da"),
    Shape.JOIN: ("#f1eafd", "#8250df"),
    Shape.STEP: ("#f6f8fa", "#8c959f"),
}
_DARK_SHAPES = {
    Shape.SOURCE: ("#12261e", "#3fb950"),
    Shape.SINK: ("#2b1526", "#db61a2"),
    Shape.SPLIT: ("#0f2729", "#39c5cf"),
    Shape.WINDOW: ("#0f2440", "#58a6ff"),
    Shape.JOIN: ("#211b38", "#a371f7"),
    Shape.STEP: ("#161b22", "#768390"),
}


def style() -> str:
    """The style sheet."""
    fixed = [
        f"text{{font-family:{_FONT};font-size:{TEXT_SIZE:g}px}}",
        f".name{{font-size:{NAME_SIZE:g}px;font-weight:650}}",
        f".title{{font-size:{TITLE_SIZE:g}px;font-weight:650}}",
        f".label,.degree{{font-size:{LABEL_SIZE:g}px}}",
        ".name,.text,.label,.degree{text-anchor:middle}",
        ".label{paint-order:stroke;stroke-width:9px;stroke-linejoin:round}",
        ".degree{font-weight:650}",
        ".box{stroke-width:1.3}",
        ".group{fill:none;stroke-width:1.2;stroke-dasharray:5 4}",
        ".line{fill:none;stroke-width:1.5}",
        ".aside.line{stroke-dasharray:6 4}",
        ".control.line{stroke-dasharray:1.5 4;stroke-linecap:round}",
    ]
    light, dark = _colours(_LIGHT, _LIGHT_SHAPES), _colours(_DARK, _DARK_SHAPES)
    return (
        "\n".join(f".penstock {rule}" for rule in _each([*fixed, *light]))
        + "\n@media (prefers-color-scheme: dark) {\n"
        + "\n".join(f".penstock {rule}" for rule in _each(dark))
        + "\n}"
    )


def _colours(tones: tuple[str, ...], shapes: dict[Shape, tuple[str, str]]) -> list[str]:
    ground, edge, strong, soft, line, group, aside = tones
    rules = [
        f".ground{{fill:{ground};stroke:{edge}}}",
        f".label{{stroke:{ground}}}",
        f".name,.title{{fill:{strong}}}",
        f".text,.label{{fill:{soft}}}",
        f".group{{stroke:{group}}}",
        f".line{{stroke:{line}}}",
        f".tip{{fill:{line}}}",
        f".aside.line{{stroke:{aside}}}",
        f".aside.tip,.aside.label{{fill:{aside}}}",
        f".degree{{fill:{ground}}}",
    ]
    for shape, (fill, line_colour) in shapes.items():
        rules.append(f".box.{shape}{{fill:{fill};stroke:{line_colour}}}")
        rules.append(f".badge.{shape}{{fill:{line_colour}}}")
    return rules


def _each(rules: list[str]) -> list[str]:
    """Rules with several selectors, one selector each, so that each gets its `.penstock`."""
    found = []
    for rule in rules:
        selectors, _, body = rule.partition("{")
        found += [f"{selector}{{{body}" for selector in selectors.split(",")]
    return found


# The lines of the SVG picture: curves between layers, corners around it, and labels that keep apart.

ROW = 18.0  # the height of a label


def drawn_lines(lines: list[Line], layout: Layout) -> Iterator[str]:
    """Every line and its arrow."""
    for line, route in zip(lines, layout.routes, strict=True):
        x, y = route.points[-1]
        path = _corners(route.points) if route.around else _curves(route.points)
        yield f'<path class="line {line.manner}" d="{path}"/>'
        yield f'<path class="tip {line.manner}" d="M{x - 8:.1f} {y - 4:.1f}v8l7.5 -4z"/>'


def _curves(points: tuple[Point, ...]) -> str:
    """By turns a curve and a straight piece; the last stops at the arrow's tip."""
    (x, y), *_ = points
    path = [f"M{x:.1f} {y:.1f}"]
    last = len(points) - 2
    for place, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        if place % 2:
            path.append(f"H{x1:.1f}")
        else:
            end = x1 - (7.0 if place == last else 0.0)
            middle = (x0 + end) / 2
            path.append(f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {end:.1f} {y1:.1f}")
    return "".join(path)


def _corners(points: tuple[Point, ...]) -> str:
    """Straight pieces with round corners."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (x0, y0), (x1, y1) = _towards(corner, before), _towards(corner, after)
        path.append(f"L{x0:.1f} {y0:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {x1:.1f} {y1:.1f}")
    path.append(f"H{points[-1][0] - 7:.1f}")
    return "".join(path)


def _towards(start: Point, end: Point) -> Point:
    """A point a little way from one towards another, along an axis."""
    (x0, y0), (x1, y1) = start, end
    far = abs(x1 - x0) + abs(y1 - y0)
    part = min(8.0, far / 2) / far if far else 0.0
    return x0 + (x1 - x0) * part, y0 + (y1 - y0) * part


def drawn_labels(lines: list[Line], labels: list[str], layout: Layout) -> Iterator[str]:
    """The labels, with a halo of the ground's colour that parts the line behind them."""
    taken: dict[int, list[tuple[float, float, float]]] = {}
    for line, label, route in zip(lines, labels, layout.routes, strict=True):
        if not label:
            continue
        width = width_of(label, LABEL_SIZE) + 10.0
        x, y = _free(route, width, taken)
        yield f'<text class="label {line.manner}" x="{x:.1f}" y="{y + 4:.1f}">{escape(label)}</text>'


def _free(route: Route, width: float, taken: dict[int, list[tuple[float, float, float]]]) -> Point:
    """A place on the line, or just beside it, that no other label has; `taken` is by rows."""
    (x0, y0), (x1, y1) = route.points[route.label : route.label + 2]
    x, y = (x0 + x1 - (0.0 if route.around else 8.0)) / 2, (y0 + y1) / 2
    tries = (y + rows * ROW for rows in (0, 1, -1, 2, -2, 3, -3))
    found = next((at for at in tries if _is_free(x, at, width, taken)), y)
    taken.setdefault(round(found / ROW), []).append((x, found, width))
    return x, found


def _is_free(x: float, y: float, width: float, taken: dict[int, list[tuple[float, float, float]]]) -> bool:
    row = round(y / ROW)
    near = (other for r in (row - 1, row, row + 1) for other in taken.get(r, ()))
    return all(abs(y - v) >= ROW or abs(x - u) >= (width + w) / 2 for u, v, w in near)


# A plan as a self-contained SVG picture, for READMEs, docs and the dashboard.
#
# Steps are boxes in layers from left to right; steps fused into one node are stacked inside a dashed box.
# Draws what `picture` says where `layout` says; uses no ids, scripts, links or fonts from elsewhere.

NARROWEST, WIDEST = 112.0, 218.0  # of a box
PAD = 14.0  # inside a box, left and right
LEADING = 14.0
STACK = 20.0  # between the boxes of a group
FRAME = 11.0  # between a group's boxes and its dashed line
MARGIN = 34.0
LABEL_WIDEST = 190.0


@dataclass(frozen=True, slots=True)
class _Text:
    """A box's text, cut to fit, and the height it needs."""

    name: str
    lines: list[str]

    @property
    def height(self) -> float:
        return 36.0 + LEADING * len(self.lines)

    @property
    def width(self) -> float:
        lines = [width_of(line, TEXT_SIZE) for line in self.lines]
        return max(NARROWEST, 2 * PAD + max(width_of(self.name, NAME_SIZE, bold=True), *lines, 0.0))


def to_svg(plan: Plan) -> str:
    """The picture as SVG text."""
    picture = picture_of(plan)
    texts = [_text(box) for box in picture.boxes]
    nodes = [_node([texts[box] for box in group]) for group in picture.groups]
    node_of = {box: node for node, group in enumerate(picture.groups) for box in group}
    lines = [line for line in picture.lines if not _inside(line, node_of)]
    inner = {line.head: line for line in picture.lines if _inside(line, node_of)}
    labels = [cut(printable(line.label), LABEL_WIDEST, LABEL_SIZE) for line in lines]
    edges = [
        Edge(
            node_of[line.tail],
            node_of[line.head],
            aside=line.manner is not Manner.ROWS,
            room=_room(label),
            leave=_leave(line.tail, picture.groups[node_of[line.tail]], texts),
        )
        for line, label in zip(lines, labels, strict=True)
    ]
    layout = lay_out(nodes, edges)
    parts = [
        *_frames(picture, layout),
        *drawn_lines(lines, layout),
        *_boxes(picture, texts, inner, layout),
        *drawn_labels(lines, labels, layout),
    ]
    return _page(picture, layout, parts)


def _inside(line: Line, node_of: dict[int, int]) -> bool:
    """Whether a line stays inside one fused group (and is no loop of a single box)."""
    return node_of[line.tail] == node_of[line.head] and line.tail < line.head


def _text(box: Box) -> _Text:
    room = WIDEST - 2 * PAD
    name = cut(printable(box.name), room, NAME_SIZE, bold=True)
    return _Text(name, wrapped(printable(box.text), room, TEXT_SIZE, lines=2))


def _node(texts: list[_Text]) -> Node:
    """The size of one box, or of a group with its frame, and where lines meet it."""
    frame = FRAME if len(texts) > 1 else 0.0
    height = sum(text.height for text in texts) + STACK * (len(texts) - 1) + 2 * frame
    leave = height - frame - texts[-1].height / 2
    return Node(max(text.width for text in texts), height, frame + texts[0].height / 2, leave)


def _leave(box: int, group: tuple[int, ...], texts: list[_Text]) -> float | None:
    """Where a line leaves a box that is not the last of its group: only lines that run backwards do."""
    if box == group[-1]:
        return None
    above = group[: group.index(box)]
    return FRAME + sum(texts[other].height + STACK for other in above) + texts[box].height / 2


def _room(label: str) -> float:
    return width_of(label, LABEL_SIZE) + 40.0 if label else 0.0


def _page(picture: Picture, layout: Layout, parts: list[str]) -> str:
    title = printable(picture.title)
    heading = cut(title, max(layout.width, 300.0), TITLE_SIZE, bold=True)
    width = max(layout.width, width_of(heading, TITLE_SIZE, bold=True)) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + 22.0
    names = ", ".join(printable(box.name) for box in picture.boxes[:40])
    more = f" and {len(picture.boxes) - 40} more" if len(picture.boxes) > 40 else ""
    about = (
        f"A graph of {len(picture.boxes)} steps: {names}{more}."
        if picture.boxes
        else "A graph without steps."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock" role="img" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(about)}</desc>",
            f"<style>\n{style()}\n</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" '
            'rx="10"/>',
            f'<text class="title" x="{MARGIN / 2 + 3:g}" y="29">{escape(heading)}</text>',
            f'<g transform="translate({MARGIN:g} {MARGIN + 22:g})">',
            *parts,
            "</g>",
            "</svg>\n",
        ]
    )


def _frames(picture: Picture, layout: Layout) -> Iterator[str]:
    for group, place in zip(picture.groups, layout.places, strict=True):
        if len(group) > 1:
            yield (
                f'<rect class="group" x="{place.x - FRAME:.1f}" y="{place.y:.1f}" '
                f'width="{place.width + 2 * FRAME:.1f}" height="{place.height:.1f}" rx="14">'
                f"<title>{len(group)} steps in one node</title></rect>"
            )


def _boxes(picture: Picture, texts: list[_Text], inner: dict[int, Line], layout: Layout) -> Iterator[str]:
    for group, place in zip(picture.groups, layout.places, strict=True):
        y = place.y + (FRAME if len(group) > 1 else 0.0)
        for rank, box in enumerate(group):
            if rank:
                yield from _down(place.x + place.width / 2, y - STACK, inner[box])
            yield from _box(picture.boxes[box], texts[box], Place(place.x, y, place.width, texts[box].height))
            y += texts[box].height + STACK


def _box(box: Box, text: _Text, place: Place) -> Iterator[str]:
    middle = place.x + place.width / 2
    yield f"<g><title>{escape(printable(f'{box.name}: {box.full}'))}</title>"
    yield (
        f'<rect class="box {box.shape}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="8"/>'
    )
    yield f'<text class="name" x="{middle:.1f}" y="{place.y + 22.5:.1f}">{escape(text.name)}</text>'
    for row, line in enumerate(text.lines):
        y = place.y + 38.5 + row * LEADING
        yield f'<text class="text" x="{middle:.1f}" y="{y:.1f}">{escape(line)}</text>'
    if box.degree:
        yield from _badge(box, place)
    yield "</g>"


def _badge(box: Box, place: Place) -> Iterator[str]:
    width = width_of(box.degree, LABEL_SIZE, bold=True) + 12.0
    x, y = place.x + place.width - width - 8.0, place.y - 8.5
    yield (
        f'<rect class="badge {box.shape}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="17" rx="8.5"/>'
    )
    yield f'<text class="degree" x="{x + width / 2:.1f}" y="{y + 12.5:.1f}">{escape(box.degree)}</text>'


def _down(x: float, y: float, line: Line) -> Iterator[str]:
    """The arrow between two boxes of a group."""
    end = y + STACK
    yield f'<path class="line {line.manner}" d="M{x:.1f} {y:.1f}V{end - 6:.1f}"/>'
    yield f'<path class="tip {line.manner}" d="M{x - 4:.1f} {end - 7.5:.1f}h8l-4 7z"/>'
    if line.label:
        label = cut(printable(line.label), NARROWEST / 2, LABEL_SIZE)
        middle = x + 8.0 + width_of(label, LABEL_SIZE) / 2
        yield f'<text class="label {line.manner}" x="{middle:.1f}" y="{y + 13:.1f}">{escape(label)}</text>'
