"""How far every stream of a plan has come, round by round: the watermarks that engines hand to stages.

A source's mark is its watermark; what flows together has the least of those not idle; a window step holds its
results back by the lateness it allows. Rows that were late can be of any age, so nothing is promised for
them but the end. Marks never go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.frozen import dataclass
from penstock.operators.op import LATE, LATE_RIGHT
from penstock.operators.source import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a stream has come.

    watermark  no more rows with a time before this
    idle       silent for so long that others need not wait for it
    over       no more rows at all
    """

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Mark(AFTER_ALL, over=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a step is told in a round.

    before  the watermark that judges its rows
    after   the watermark that says what leaves
    over    no more rows can come
    """

    before: float
    after: float
    over: bool


class Marks:
    """The marks of all steps; `saved` takes up what another run had reached."""

    def __init__(self, plan: Plan, saved: Mapping[str, float] | None = None) -> None:
        self._steps = [step for step in plan if not isinstance(step.op, Source)]
        known = saved or {}
        self._inputs = {step.name: Mark(known.get(step.name, BEFORE_ALL)) for step in self._steps}
        self._outputs: dict[str, Mark] = {}
        self._held_back = {step.name: held_back(step) for step in self._steps}

    def move(self, sources: Mapping[str, Mark]) -> dict[str, Turn]:
        """A round goes by, after which the sources have come so far: what each other step is told."""
        self._outputs |= sources
        turns = {}
        for step in self._steps:
            before = self._inputs[step.name]
            after = flowing_together((self._mark(ref) for ref in step.data_feeds), before)
            self._inputs[step.name] = after
            by = self._held_back[step.name]
            self._outputs[step.name] = Mark(after.watermark - by, after.idle, after.over)
            turns[step.name] = Turn(before.watermark, after.watermark, after.over)
        return turns

    def reached(self) -> dict[str, float]:
        """The watermark of every step's input, to be saved; those not moved yet are left out."""
        marks = {name: mark.watermark for name, mark in self._inputs.items()}
        return {name: mark for name, mark in marks.items() if mark != BEFORE_ALL}

    def _mark(self, ref: Ref) -> Mark:
        mark = self._outputs[ref.step]
        if ref.port in (LATE, LATE_RIGHT):
            return OVER if mark.over else Mark()
        return mark


def flowing_together(marks: Iterable[Mark], before: Mark) -> Mark:
    """The mark of streams that flow together: the least watermark of those not idle, never going back."""
    marks = list(marks)
    if len(marks) == 1 and not marks[0].idle and marks[0].watermark >= before.watermark:
        return marks[0]  # most streams come alone
    awake = [mark.watermark for mark in marks if not mark.idle]
    watermark = max(before.watermark, min(awake)) if awake else before.watermark
    return Mark(watermark, idle=not awake, over=all(mark.over for mark in marks))


def held_back(step: Step) -> int:
    """How far the results of a step come behind the watermark of its input."""
    return step.op.resolved(step.up).lateness if isinstance(step.op, Windows) else 0
