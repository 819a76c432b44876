"""The contents of a picture of a plan: boxes, lines between them, and groups of fused steps.

Mermaid, here, and SVG draw the same `Picture`, so they agree on every label and colour.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import Enum, StrEnum

from penstock.frozen import Frozen
from penstock.operators.ends import Sink, Source
from penstock.operators.op import ERRORS, IN, LATE, OUT, Degree, Op, Routing
from penstock.operators.rows import Select, Split
from penstock.operators.stream_join import StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step, group_fused

_COLUMN = re.compile(r'\bcol\("([A-Za-z_]\w*)"\)')


class Shape(Enum):
    """What kind of step a box stands for, and how it looks.

    light, dark  fill and edge on a light page and on a dark one
    brackets     what stands around its text in Mermaid
    """

    SOURCE = "source", ("#e6f6ec", "#2da44e"), ("#12261e", "#3fb950"), ("([", "])")
    SINK = "sink", ("#fbeaf4", "#bf3989"), ("#2b1526", "#db61a2"), ("[(", ")]")
    SPLIT = "split", ("#e2f5f5", "#1b8a8f"), ("#0f2729", "#39c5cf"), ("{", "}")
    WINDOW = "window", ("#e3effd", "#0969da"), ("#0f2440", "#58a6ff"), ("[[", "]]")
    JOIN = "join", ("#f1eafd", "#8250df"), ("#211b38", "#a371f7"), ("{{", "}}")
    STEP = "step", ("#f6f8fa", "#8c959f"), ("#161b22", "#768390"), ("[", "]")

    def __init__(
        self, label: str, light: tuple[str, str], dark: tuple[str, str], brackets: tuple[str, str]
    ) -> None:
        self.label, self.light, self.dark, self.brackets = label, light, dark, brackets

    def __str__(self) -> str:
        return self.label


class LineKind(StrEnum):
    """What a line carries: rows, rows of a side output (late, errors), or control."""

    ROWS = "rows"
    ASIDE = "aside"
    CONTROL = "control"


class Box(Frozen):
    """A step: its name, a short and a full text of what it does, and `×4` unless it has one replica."""

    name: str
    text: str
    full: str
    shape: Shape
    degree: str


class Line(Frozen):
    """An edge between two boxes, by their index; the label names branch, port and routing, or nothing."""

    tail: int
    head: int
    label: str
    kind: LineKind


class Picture(Frozen):
    """Boxes in the order of the steps; every box is in one group, and most groups have one box.

    All texts are printable: names are, or graph and steps would have been refused.
    """

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    groups: tuple[tuple[int, ...], ...]


def build_picture(plan: Plan) -> Picture:
    """Return what to draw for a plan."""
    place = {step.name: index for index, step in enumerate(plan)}
    boxes, lines = [], []
    for step in plan:
        text = short_text(step.op)
        # Why: a step named after its verb need not say it twice.
        text = text.removeprefix(f"{step.op.verb} ") if step.name.startswith(step.op.verb) else text
        text = "" if text == step.name else make_printable(text)
        shape = next((shape for kind, shape in _SHAPES.items() if isinstance(step.op, kind)), Shape.STEP)
        degree = "" if step.degree == Degree(1, 1) else f"×{step.degree}"
        boxes.append(Box(step.name, text, make_printable(step.op.describe()), shape, degree))
        for port in step.inputs:
            several = len(step.inputs) > 1
            routed = step.routing not in (None, Routing.FORWARD) and not port.control
            # Why: the ports of a join or a process say more than the routing that all of them share.
            by_port = several and step.routing is Routing.COMPLEX
            to_port = port.port if several and port.port != IN else ""
            routing = describe_routing(step) if routed and not by_port else ""
            for ref in port.feeds:
                if ref.step in place:
                    parts = (ref.port if ref.port != OUT else "", to_port, routing)
                    label = make_printable(" · ".join(part for part in parts if part))
                    kind = LineKind.ASIDE if is_side_output(ref.port) else LineKind.ROWS
                    kind = LineKind.CONTROL if port.control else kind
                    lines.append(Line(place[ref.step], place[step.name], label, kind))
    groups = tuple(tuple(place[step.name] for step in node) for node in group_fused(plan))
    return Picture(plan.graph, tuple(boxes), tuple(lines), groups)


def describe_routing(step: Step) -> str:
    """Describe how rows reach a step's replicas; "forward" when each stays where it is."""
    match step.routing:
        case None | Routing.FORWARD:
            return "forward"
        case Routing.KEY_BY:
            return f"key by {', '.join(step.up.key)}" if step.up.key else "all in one group"
        case Routing.COMPLEX:
            return _COMPLEX.get(step.op.kind, "by port")
        case routing:
            return str(routing)


_COMPLEX = {"PW": "by window", "PAW": "by pane", "MRW": "by part of the window", "WJ": "grid of workers"}


_SHAPES: dict[type[Op], Shape] = {
    Source: Shape.SOURCE,
    Sink: Shape.SINK,
    Split: Shape.SPLIT,
    Windows: Shape.WINDOW,
    StreamJoin: Shape.JOIN,
    TableJoin: Shape.JOIN,
}


def short_text(op: Op) -> str:
    """Describe an operator in the few words that fit into a box."""
    match op:
        case Source():
            text = f"read {op.reader.describe()}"
        case Sink():
            text = f"write {op.writer.describe()}"
        case Split():
            text = f"by {op.how}" if op.predicates is None else f"{len(op.names)} branches"
        case Windows():
            text = ", ".join(f"{label}: {spec}" if label else str(spec) for label, spec in op.specs)
        case Select():
            text = ", ".join(n if str(e) == f'col("{n}")' else f"{n}={e}" for n, e in op.how.columns)
        case TableJoin():
            text = f"{op.table.describe()} on {', '.join(op.columns)}"
        case _:
            text = op.describe()
    return _COLUMN.sub(r"\1", text)


def is_side_output(port: str) -> bool:
    """Return whether an output port carries rows that went wrong: `late`, `late_right`, `errors`."""
    return port in (LATE, ERRORS) or port.startswith(f"{LATE}_")


def make_printable(text: str) -> str:
    """Return one line without control characters, which XML forbids and no reader can see."""
    if text.isprintable():
        return text
    letters = (" " if letter in "\n\r\t" else letter for letter in text)
    return "".join(
        "\ufffd" if letter in "\u2028\u2029" or unicodedata.category(letter) in ("Cc", "Cs", "Cn") else letter
        for letter in letters
    )


# The picture as a Mermaid flowchart, which GitHub and many editors draw by themselves.

LONGEST = 60  # letters of a box's second line
_ESCAPES = str.maketrans({letter: f"#{ord(letter)};" for letter in '"#&<>%`\\'})


def to_mermaid(plan: Plan) -> str:
    """Return the picture as Mermaid text.

    Everything a user can name is quoted and escaped: also `%`, because Mermaid reads `%%{...}` as a directive
    wherever it stands, and the backtick, which would begin Markdown.
    """
    picture = build_picture(plan)
    lines = ["flowchart LR"]
    for number, group in enumerate(picture.groups):
        boxes = []
        for place in group:
            box = picture.boxes[place]
            text = box.text if len(box.text) <= LONGEST else box.text[: LONGEST - 1].rstrip() + "…"
            texts = (part.translate(_ESCAPES) for part in (f"{box.name} {box.degree}".rstrip(), text) if part)
            left, right = box.shape.brackets
            boxes.append(f'  s{place}{left}"{"<br/>".join(texts)}"{right}')
        framed = [f'  subgraph g{number} [" "]', *(f"  {box}" for box in boxes), "  end"]
        lines += boxes if len(group) == 1 else framed
    for line in picture.lines:
        arrow = "-->" if line.kind is LineKind.ROWS else "-.->"
        label = f'|"{line.label.translate(_ESCAPES)}"|' if line.label else ""
        lines.append(f"  s{line.tail} {arrow}{label} s{line.head}")
    return "\n".join([*lines, *_mermaid_styles(picture)]) + "\n"


def _mermaid_styles(picture: Picture) -> Iterator[str]:
    """Yield a class per shape, dashed frames around fused steps, and a warm colour for side outputs."""
    for shape in Shape:
        fill, edge = shape.light
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
