"""A plan as a Mermaid flowchart, which GitHub and many editors draw by themselves.

Everything a user can name is quoted and escaped: also `%`, because Mermaid reads `%%{...}` as a
directive wherever it stands, and the backtick, which would begin Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.drawing.picture import (
    LIGHT_COLOURS,
    Box,
    Line,
    LineKind,
    Picture,
    Shape,
    build_picture,
    make_printable,
)
from penstock.plan.plan import Plan

LONGEST = 60  # letters of a box's second line

_BRACKETS = {
    Shape.SOURCE: ("([", "])"),
    Shape.SINK: ("[(", ")]"),
    Shape.SPLIT: ("{", "}"),
    Shape.WINDOW: ("[[", "]]"),
    Shape.JOIN: ("{{", "}}"),
    Shape.STEP: ("[", "]"),
}
_ESCAPES = str.maketrans({letter: f"#{ord(letter)};" for letter in '"#&<>%`\\'})


def to_mermaid(plan: Plan) -> str:
    """Return the picture as Mermaid text."""
    picture = build_picture(plan)
    return "\n".join(["flowchart LR", *_nodes(picture), *_edges(picture), *_styles(picture)]) + "\n"


def _nodes(picture: Picture) -> Iterator[str]:
    for number, group in enumerate(picture.groups):
        if len(group) == 1:
            yield f"  {_node(group[0], picture.boxes[group[0]])}"
            continue
        yield f'  subgraph g{number} [" "]'
        yield from (f"    {_node(place, picture.boxes[place])}" for place in group)
        yield "  end"


def _node(place: int, box: Box) -> str:
    left, right = _BRACKETS[box.shape]
    text = box.text if len(box.text) <= LONGEST else box.text[: LONGEST - 1].rstrip() + "…"
    lines = [_escape(box.name) + (f" {_escape(box.degree)}" if box.degree else ""), _escape(text)]
    return f's{place}{left}"{"<br/>".join(line for line in lines if line)}"{right}'


def _edges(picture: Picture) -> Iterator[str]:
    for line in picture.lines:
        yield f"  s{line.tail} {_arrow(line)} s{line.head}"


def _arrow(line: Line) -> str:
    arrow = "-->" if line.kind is LineKind.ROWS else "-.->"
    return f'{arrow}|"{_escape(line.label)}"|' if line.label else arrow


def _styles(picture: Picture) -> Iterator[str]:
    """Yield a class per shape, dashed frames around fused steps, and a warm colour for side outputs."""
    for shape, (fill, edge) in LIGHT_COLOURS.items():
        of_shape = [f"s{place}" for place, box in enumerate(picture.boxes) if box.shape is shape]
        if of_shape:
            yield f"  classDef {shape} fill:{fill},stroke:{edge},color:#1f2328"
            yield f"  class {','.join(of_shape)} {shape}"
    frames = [f"g{number}" for number, group in enumerate(picture.groups) if len(group) > 1]
    if frames:
        yield "  classDef fused fill:none,stroke:#8c959f,stroke-dasharray:5 4"
        yield f"  class {','.join(frames)} fused"
    side = [str(place) for place, line in enumerate(picture.lines) if line.kind is LineKind.ASIDE]
    if side:
        yield f"  linkStyle {','.join(side)} stroke:#bc4c00,color:#bc4c00"


def _escape(text: str) -> str:
    return make_printable(text).translate(_ESCAPES)
