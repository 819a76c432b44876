"""A plan as a self-contained SVG picture, for READMEs and docs.

Steps are boxes in layers from left to right; steps fused into one task are stacked inside a dashed frame.
Draws what `picture` says where `layout` says. Uses no ids, scripts, links or fonts from elsewhere; brings its
own background, follows the reader's colour scheme, and styles nothing outside `.penstock`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import accumulate, pairwise

from penstock.frozen import Frozen
from penstock.plan.layout import Edge, Layout, Node, Point, lay_out
from penstock.plan.picture import Box, Line, LineKind, Picture, Shape, build_picture
from penstock.plan.plan import Plan

NAME_SIZE, TEXT_SIZE, LABEL_SIZE, TITLE_SIZE = 13.0, 11.0, 11.0, 15.0
NARROWEST, WIDEST = 112.0, 218.0  # of a box
PADDING = 14.0  # inside a box, left and right
LINE_HEIGHT = 14.0
STACK = 20.0  # between the boxes of a group
FRAME = 11.0  # between a group's boxes and its dashed frame
MARGIN = 34.0
LABEL_WIDEST, LABEL_HEIGHT = 190.0, 18.0
N_DESCRIBED = 40  # steps named in the description for those who cannot see the picture

_FONT = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, '
    "sans-serif"
)
_LETTERS = {"ijlI.,:;'|!()[]{}/\\ `-": 0.4, 'frt"*': 0.46, "→×+=<>#&~_": 0.84, "mwMW@%—…": 0.98}
_WIDTHS = {letter: width for letters, width in _LETTERS.items() for letter in letters}
"""The width of letters in ems."""
_TONES = ("ground", "edge", "strong", "soft", "line", "group", "aside")
_LIGHT_TONES = ("#ffffff", "#d8dee4", "#1f2328", "#59636e", "#6e7781", "#8c959f", "#bc4c00")
_DARK_TONES = ("#0d1117", "#30363d", "#f0f6fc", "#9da7b3", "#8b949e", "#6e7681", "#f0883e")

_FORMS = {
    "text": f"font-family:{_FONT};font-size:{TEXT_SIZE:g}px",
    ".name": f"font-size:{NAME_SIZE:g}px;font-weight:650;text-anchor:middle",
    ".text": "text-anchor:middle",
    ".title": f"font-size:{TITLE_SIZE:g}px;font-weight:650",
    ".label": f"font-size:{LABEL_SIZE:g}px;text-anchor:middle;"
    "paint-order:stroke;stroke-width:9px;stroke-linejoin:round",
    ".degree": f"font-size:{LABEL_SIZE:g}px;text-anchor:middle;font-weight:650",
    ".box": "stroke-width:1.3",
    ".group": "fill:none;stroke-width:1.2;stroke-dasharray:5 4",
    ".line": "fill:none;stroke-width:1.5",
    ".aside.line": "stroke-dasharray:6 4",
    ".control.line": "stroke-dasharray:1.5 4;stroke-linecap:round",
}
_COLOURS = {
    ".ground": "fill:{ground};stroke:{edge}",
    ".name": "fill:{strong}",
    ".title": "fill:{strong}",
    ".text": "fill:{soft}",
    ".label": "fill:{soft};stroke:{ground}",
    ".group": "stroke:{group}",
    ".line": "stroke:{line}",
    ".tip": "fill:{line}",
    ".aside.line": "stroke:{aside}",
    ".aside.tip": "fill:{aside}",
    ".aside.label": "fill:{aside}",
    ".degree": "fill:{ground}",
}


class _Text(Frozen):
    """A box's text, cut to fit, and the size it needs."""

    name: str
    lines: list[str]

    @property
    def height(self) -> float:
        return 36.0 + LINE_HEIGHT * len(self.lines)

    @property
    def width(self) -> float:
        lines = [width_of(line, TEXT_SIZE) for line in self.lines]
        return max(NARROWEST, 2 * PADDING + max(width_of(self.name, NAME_SIZE, bold=True), *lines, 0.0))


def to_svg(plan: Plan) -> str:
    """Return the picture as SVG text."""
    picture = build_picture(plan)
    room = WIDEST - 2 * PADDING
    texts = [
        _Text(cut(step.name, room, NAME_SIZE, bold=True), wrap(step.text, room, TEXT_SIZE, lines=2))
        for step in picture.boxes
    ]
    nodes = []
    tops: dict[int, float] = {}  # of each box, from the top of its group
    for group in picture.groups:
        y = frame = FRAME if len(group) > 1 else 0.0
        for box in group:
            tops[box] = y
            y += texts[box].height + STACK
        middles = [tops[box] + texts[box].height / 2 for box in group]
        width = max(texts[box].width for box in group)
        nodes.append(Node(width, y - STACK + frame, middles[0], middles[-1]))
    node_of = {box: node for node, group in enumerate(picture.groups) for box in group}
    # Lines inside one fused group lead down from box to box; a loop of a single box is none of them.
    inner = {
        line.head: line
        for line in picture.lines
        if node_of[line.tail] == node_of[line.head] and line.tail < line.head
    }
    lines = [line for line in picture.lines if inner.get(line.head) is not line]
    labels = [cut(line.label, LABEL_WIDEST, LABEL_SIZE) for line in lines]
    edges = [
        Edge(
            node_of[line.tail],
            node_of[line.head],
            aside=line.kind is not LineKind.ROWS,
            label_width=width_of(label, LABEL_SIZE) + 40.0 if label else 0.0,
            leave=tops[line.tail] + texts[line.tail].height / 2,
        )
        for line, label in zip(lines, labels, strict=True)
    ]
    layout = lay_out(nodes, edges)
    parts = [
        *_draw_lines(lines, layout),
        *_draw_groups(picture, texts, inner, nodes, tops),
        *_draw_labels(lines, labels, layout),
    ]
    return _assemble(picture, layout, parts)


def _assemble(picture: Picture, layout: Layout, parts: list[str]) -> str:
    heading = cut(picture.title, max(layout.width, 300.0), TITLE_SIZE, bold=True)
    width = max(layout.width, width_of(heading, TITLE_SIZE, bold=True)) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + 22.0
    names = ", ".join(box.name for box in picture.boxes[:N_DESCRIBED])
    more = f" and {len(picture.boxes) - N_DESCRIBED} more" if len(picture.boxes) > N_DESCRIBED else ""
    steps = f"of {len(picture.boxes)} steps: {names}{more}" if picture.boxes else "without steps"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock" role="img" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{escape(picture.title)}</title>",
            f"<desc>{escape(f'A graph {steps}.')}</desc>",
            f"<style>\n{_style()}\n</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" '
            'rx="10"/>',
            f'<text class="title" x="{MARGIN / 2 + 3:g}" y="29">{escape(heading)}</text>',
            f'<g transform="translate({MARGIN:g} {MARGIN + 22:g})">',
            *parts,
            "</g>",
            "</svg>\n",
        ]
    )


def _draw_groups(
    picture: Picture, texts: list[_Text], inner: dict[int, Line], places: list[Node], tops: dict[int, float]
) -> Iterator[str]:
    """Draw the boxes; those of a group are stacked in a frame, with arrows between them."""
    for group, place in zip(picture.groups, places, strict=True):
        if len(group) > 1:
            yield (
                f'<rect class="group" x="{place.x - FRAME:.1f}" y="{place.y:.1f}" '
                f'width="{place.width + 2 * FRAME:.1f}" height="{place.height:.1f}" rx="14">'
                f"<title>{len(group)} steps in one task</title></rect>"
            )
        for rank, box in enumerate(group):
            y = place.y + tops[box]
            if rank:
                yield from _draw_arrow_down(place.x + place.width / 2, y - STACK, inner[box])
            at = Node(place.width, texts[box].height, x=place.x, y=y)
            yield from _draw_box(picture.boxes[box], texts[box], at)


def _draw_box(box: Box, text: _Text, place: Node) -> Iterator[str]:
    middle = place.x + place.width / 2
    yield f"<g><title>{escape(f'{box.name}: {box.full}')}</title>"
    yield (
        f'<rect class="box {box.shape}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="8"/>'
    )
    yield f'<text class="name" x="{middle:.1f}" y="{place.y + 22.5:.1f}">{escape(text.name)}</text>'
    for row, line in enumerate(text.lines):
        y = place.y + 38.5 + row * LINE_HEIGHT
        yield f'<text class="text" x="{middle:.1f}" y="{y:.1f}">{escape(line)}</text>'
    if box.degree:
        width = width_of(box.degree, LABEL_SIZE, bold=True) + 12.0
        x, y = place.x + place.width - width - 8.0, place.y - 8.5
        at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="17"'
        yield f'<rect class="badge {box.shape}" {at} rx="8.5"/>'
        yield f'<text class="degree" x="{x + width / 2:.1f}" y="{y + 12.5:.1f}">{escape(box.degree)}</text>'
    yield "</g>"


def _draw_arrow_down(x: float, y: float, line: Line) -> Iterator[str]:
    """Draw the arrow between two boxes of a group."""
    end = y + STACK
    yield f'<path class="line {line.kind}" d="M{x:.1f} {y:.1f}V{end - 6:.1f}"/>'
    yield f'<path class="tip {line.kind}" d="M{x - 4:.1f} {end - 7.5:.1f}h8l-4 7z"/>'
    if line.label:
        label = cut(line.label, NARROWEST / 2, LABEL_SIZE)
        middle = x + 8.0 + width_of(label, LABEL_SIZE) / 2
        yield f'<text class="label {line.kind}" x="{middle:.1f}" y="{y + 13:.1f}">{escape(label)}</text>'


def _draw_lines(lines: list[Line], layout: Layout) -> Iterator[str]:
    """Draw every line and its arrow; one that goes around has round corners."""
    for line, route in zip(lines, layout.routes, strict=True):
        x, y = route.points[-1]
        path = _curves(route.points)
        if route.around:  # to the right, down, left, up and right again
            (start, leave), (right, _), (_, below), (left, _), _, (end, enter) = route.points
            path = (
                f"M{start:.1f} {leave:.1f}H{right - 8:.1f}q8 0 8 8V{below - 8:.1f}q0 8 -8 8"
                f"H{left + 8:.1f}q-8 0 -8 -8V{enter + 8:.1f}q0 -8 8 -8H{end - 7:.1f}"
            )
        yield f'<path class="line {line.kind}" d="{path}"/>'
        yield f'<path class="tip {line.kind}" d="M{x - 8:.1f} {y - 4:.1f}v8l7.5 -4z"/>'


def _curves(points: tuple[Point, ...]) -> str:
    """Return alternately a curve and a straight piece; the last stops at the arrow's tip."""
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


def _draw_labels(lines: list[Line], labels: list[str], layout: Layout) -> Iterator[str]:
    """Draw the labels, with a halo in the background's colour that interrupts the line behind them."""
    occupied: list[tuple[float, float, float]] = []
    for line, label, route in zip(lines, labels, layout.routes, strict=True):
        if not label:
            continue
        width = width_of(label, LABEL_SIZE) + 10.0
        x, middle = route.label[0] - (0.0 if route.around else 4.0), route.label[1]
        for rows in (0, 1, -1, 2, -2, 3, -3, 0):  # on the line, or just beside it, where no other label is
            y = middle + rows * LABEL_HEIGHT
            if all(abs(y - v) >= LABEL_HEIGHT or abs(x - u) >= (width + w) / 2 for u, v, w in occupied):
                break
        occupied.append((x, y, width))
        yield f'<text class="label {line.kind}" x="{x:.1f}" y="{y + 4:.1f}">{escape(label)}</text>'


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Estimate the width of a line of text: that of DejaVu Sans, the widest of the usual system fonts."""
    ems = 0.0
    for char in text:
        usual = 0.72 if char.isupper() else 0.63
        if char > "\u024f":  # beyond Latin: ideographs and signs may be a full square
            usual = 0.0 if unicodedata.combining(char) else 1.1
        ems += _WIDTHS.get(char, usual)
    return ems * size * (1.1 if bold else 1.0)


def cut(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return the text, or as much of its beginning as fits with "…" after it."""
    if width_of(text, size, bold=bold) <= width:
        return text
    room = width - width_of("…", size, bold=bold)
    n_chars = sum(used <= room for used in accumulate(width_of(char, size, bold=bold) for char in text))
    return text[:n_chars].rstrip() + "…"


def wrap(text: str, width: float, size: float, *, lines: int) -> list[str]:
    """Return the text in at most this many lines, broken at spaces; the last one is cut if need be."""
    wrapped: list[str] = []
    words = text.split()
    while words and len(wrapped) < lines - 1:
        ends = accumulate(width_of(f"{word} ", size) for word in words)
        n_words = sum(end - width_of(" ", size) <= width for end in ends)
        if n_words in (0, len(words)):
            break
        wrapped.append(" ".join(words[:n_words]))
        words = words[n_words:]
    return [*wrapped, cut(" ".join(words), width, size)] if words else wrapped


def _style() -> str:
    """Return the style sheet, for light and for dark pages."""
    light = _colour_rules(_LIGHT_TONES, {shape: shape.light for shape in Shape})
    dark = _colour_rules(_DARK_TONES, {shape: shape.dark for shape in Shape})
    rules = [f".penstock {selector}{{{rule}}}" for selector, rule in _FORMS.items()]
    return "\n".join([*rules, *light, "@media (prefers-color-scheme: dark) {", *dark, "}"])


def _colour_rules(tones: tuple[str, ...], shapes: dict[Shape, tuple[str, str]]) -> list[str]:
    by_name = dict(zip(_TONES, tones, strict=True))
    rules = [f".penstock {selector}{{{rule.format(**by_name)}}}" for selector, rule in _COLOURS.items()]
    for shape, (fill, edge) in shapes.items():
        rules.append(f".penstock .box.{shape}{{fill:{fill};stroke:{edge}}}")
        rules.append(f".penstock .badge.{shape}{{fill:{edge}}}")
    return rules
