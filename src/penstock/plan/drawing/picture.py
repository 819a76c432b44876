"""What a picture of a plan shows, whoever draws it: boxes, lines between them, and fused groups.

Mermaid and SVG draw the same `Picture`, so they cannot disagree on what is labelled how.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum

from penstock.frozen import dataclass
from penstock.operators.columns import Select
from penstock.operators.op import ERRORS, IN, LATE, OUT, Degree, Op, Routing
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.split import Split
from penstock.operators.stream_join import StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.fusion import fused_with, groups
from penstock.plan.plan import Input, Plan, Ref, Step

_COLUMN = re.compile(r'\bcol\("([A-Za-z_]\w*)"\)')


class Shape(StrEnum):
    """What kind of step a box stands for."""

    SOURCE = "source"
    SINK = "sink"
    SPLIT = "split"
    WINDOW = "window"
    JOIN = "join"
    STEP = "step"


class Manner(StrEnum):
    """What a line carries: rows, rows that went aside (late, errors), or control."""

    ROWS = "rows"
    ASIDE = "aside"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Box:
    """A step: its name, what it does in few words and in full, and `×4` unless it has one replica."""

    name: str
    text: str
    full: str
    shape: Shape
    degree: str


@dataclass(frozen=True, slots=True)
class Line:
    """An edge between two boxes, by their places; `label` says branch, port and routing, or nothing."""

    tail: int
    head: int
    label: str
    manner: Manner


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes in the order of the steps; every box is in one group, and most groups have one box."""

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    groups: tuple[tuple[int, ...], ...]


def picture_of(plan: Plan) -> Picture:
    """What to draw for a plan."""
    place = {step.name: index for index, step in enumerate(plan)}
    lines = [
        Line(place[ref.step], place[step.name], _label(ref, step, given), _manner(ref, given))
        for step in plan
        for given in step.inputs
        for ref in given.feeds
        if ref.step in place
    ]
    nodes = groups(plan, fused_with(plan))
    return Picture(
        plan.graph,
        tuple(_box(step) for step in plan),
        tuple(lines),
        tuple(tuple(place[step.name] for step in node) for node in nodes),
    )


def routing_words(step: Step) -> str:
    """How rows reach a step's replicas, in words; "forward" when each stays where it is."""
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


def replicas(degree: Degree) -> str:
    """`×4`, `×1..8`, or nothing for a single replica."""
    return "" if degree == Degree(1, 1) else f"×{degree}"


def shape_of(op: Op) -> Shape:
    """The kind of box an operator gets."""
    for shape, kinds in _SHAPES.items():
        if isinstance(op, kinds):
            return shape
    return Shape.STEP


_SHAPES: dict[Shape, type[Op] | tuple[type[Op], ...]] = {
    Shape.SOURCE: Source,
    Shape.SINK: Sink,
    Shape.SPLIT: Split,
    Shape.WINDOW: Windows,
    Shape.JOIN: (StreamJoin, TableJoin),
}


def short_text(op: Op) -> str:
    """What an operator does, in the few words that fit into a box."""
    match op:
        case Source():
            text = f"read {op.reader.describe()}"
        case Sink():
            text = f"write {op.writer.describe()}"
        case Split():
            text = f"by {op.how}" if op.predicates is None else f"{len(op.names)} branches"
        case Windows():
            text = ", ".join(f"{label}: {spec}" if label else str(spec) for label, spec in op.named())
        case Select():
            text = ", ".join(n if str(e) == f'col("{n}")' else f"{n}={e}" for n, e in op.how.columns)
        case TableJoin():
            text = f"{op.table.describe()} on {', '.join(op.columns)}"
        case _:
            text = op.describe()
    return _COLUMN.sub(r"\1", text)


def _box(step: Step) -> Box:
    text = short_text(step.op)
    # A step that bears its verb as its name need not say it twice.
    text = text.removeprefix(f"{step.op.verb} ") if step.name.startswith(step.op.verb) else text
    text = "" if text == step.name else text
    return Box(step.name, text, step.op.describe(), shape_of(step.op), replicas(step.degree))


def _manner(ref: Ref, given: Input) -> Manner:
    if given.control:
        return Manner.CONTROL
    return Manner.ASIDE if is_aside(ref.port) else Manner.ROWS


def is_aside(port: str) -> bool:
    """Whether an output port carries rows that went wrong: `late`, a join's `late_right`, `errors`."""
    return port in (LATE, ERRORS) or port.startswith(f"{LATE}_")


def _label(ref: Ref, step: Step, given: Input) -> str:
    several = len(step.inputs) > 1
    routed = step.routing not in (None, Routing.FORWARD) and not given.control
    # The ports of a join or a process say more than the routing that all of them share.
    by_port = several and step.routing is Routing.COMPLEX
    parts = [
        ref.port if ref.port != OUT else "",
        given.port if several and given.port != IN else "",
        routing_words(step) if routed and not by_port else "",
    ]
    return " · ".join(part for part in parts if part)


# Make text fit: how wide it will be in a font we cannot measure, and what to leave out.
#
# Widths are those of DejaVu Sans, the widest of the usual system fonts, so text that fits here fits
# everywhere. Anything a user can name may come in: control characters are shown as a box.

_NARROW = frozenset("ijlI.,:;'|!()[]{}/\\ `-")
_MIDDLE = frozenset('frt"*')
_WIDE = frozenset("mwMW@%—…→×+=<>#&~_")


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a line of text in a sans-serif font of that size."""
    return sum(map(_em, text)) * size * (1.1 if bold else 1.0)


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.4
    if letter in _MIDDLE:
        return 0.46
    if letter in _WIDE:
        return 0.98 if letter in "mwMW@%—…" else 0.84
    if letter > "\u024f":  # beyond Latin: ideographs and signs may be a full square
        return 0.0 if unicodedata.combining(letter) else 1.1
    return 0.72 if letter.isupper() else 0.63


def cut(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning as fits with "…" after it."""
    if width_of(text, size, bold=bold) <= width:
        return text
    room = width - width_of("…", size, bold=bold)
    kept = 0
    for letter in text:
        room -= width_of(letter, size, bold=bold)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def wrapped(text: str, width: float, size: float, *, lines: int) -> list[str]:
    """The text in at most so many lines, broken at spaces; the last one is cut if need be."""
    found: list[str] = []
    rest = text.strip()
    while rest and len(found) < lines - 1 and width_of(rest, size) > width:
        line = _first_line(rest, width, size)
        if not line:
            break
        found.append(line)
        rest = rest[len(line) :].strip()
    return [*found, cut(rest, width, size)] if rest else found


def _first_line(text: str, width: float, size: float) -> str:
    """As many whole words as fit; nothing when the first word alone is too long."""
    end, used = 0, 0.0
    for place, letter in enumerate(text):
        if letter == " ":
            end = place
        used += width_of(letter, size)
        if used > width:
            break
    return text[:end]


def printable(text: str) -> str:
    """One line without control characters, which XML forbids and no reader can see."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter in "\n\r\t":
        return " "
    bad = unicodedata.category(letter) in ("Cc", "Cs", "Cn") or letter in "\u2028\u2029"
    return "\ufffd" if bad else letter
