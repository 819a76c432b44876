"""A plan as a self-contained SVG picture, for READMEs, docs and the dashboard.

Steps are boxes in layers from left to right; steps fused into one node are stacked inside a dashed box.
Draws what `picture` says where `layout` says; uses no ids, scripts, links or fonts from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from penstock.frozen import dataclass
from penstock.plan.fitting import cut, printable, width_of, wrapped
from penstock.plan.layers import Edge
from penstock.plan.layout import Layout, Place, lay_out
from penstock.plan.levels import Node
from penstock.plan.picture import Box, Line, Manner, Picture, picture_of
from penstock.plan.plan import Plan
from penstock.plan.svg_lines import drawn_labels, drawn_lines
from penstock.plan.svg_style import LABEL_SIZE, NAME_SIZE, TEXT_SIZE, TITLE_SIZE, style

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
