"""A plan as a Mermaid flowchart, which GitHub and many editors draw by themselves.

Everything a user can name is quoted and escaped: also `%`, because Mermaid reads `%%{...}` as a
directive wherever it stands, and the backtick, which would begin Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.drawing.picture import Box, Line, Manner, Picture, Shape, picture_of, printable
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
_COLOURS = {
    Shape.SOURCE: "fill:#e6f6ec,stroke:#2da44e,color:#1f2328",
    Shape.SINK: "fill:#fbeaf4,stroke:#bf3989,color:#1f2328",
    Shape.SPLIT: "fill:#e2f5f5,stroke:#1b8a8f,color:#1f2328",
    Shape.WINDOW: "fill:#e3effd,stroke:#0969da,color:#1f2328",
    Shape.JOIN: "fill:#f1eafd,stroke:#8250df,color:#1f2328",
    Shape.STEP: "fill:#f6f8fa,stroke:#8c959f,color:#1f2328",
}
_ESCAPES = str.maketrans({letter: f"#{ord(letter)};" for letter in '"#&<>%`\\'})


def to_mermaid(plan: Plan) -> str:
    """The picture as Mermaid text."""
    picture = picture_of(plan)
    return "\n".join(["flowchart LR", *_nodes(picture), *_edges(picture), *_looks(picture)]) + "\n"


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
    lines = [_quoted(box.name) + (f" {_quoted(box.degree)}" if box.degree else ""), _quoted(text)]
    return f's{place}{left}"{"<br/>".join(line for line in lines if line)}"{right}'


def _edges(picture: Picture) -> Iterator[str]:
    for line in picture.lines:
        yield f"  s{line.tail} {_arrow(line)} s{line.head}"


def _arrow(line: Line) -> str:
    arrow = "-->" if line.manner is Manner.ROWS else "-.->"
    return f'{arrow}|"{_quoted(line.label)}"|' if line.label else arrow


def _looks(picture: Picture) -> Iterator[str]:
    """A class per shape, dashed frames around fused steps, and a warm colour for rows that went aside."""
    for shape, look in _COLOURS.items():
        of_shape = [f"s{place}" for place, box in enumerate(picture.boxes) if box.shape is shape]
        if of_shape:
            yield f"  classDef {shape} {look}"
            yield f"  class {','.join(of_shape)} {shape}"
    frames = [f"g{number}" for number, group in enumerate(picture.groups) if len(group) > 1]
    if frames:
        yield "  classDef fused fill:none,stroke:#8c959f,stroke-dasharray:5 4"
        yield f"  class {','.join(frames)} fused"
    warm = [str(place) for place, line in enumerate(picture.lines) if line.manner is Manner.ASIDE]
    if warm:
        yield f"  linkStyle {','.join(warm)} stroke:#bc4c00,color:#bc4c00"


def _quoted(text: str) -> str:
    return printable(text).translate(_ESCAPES)
