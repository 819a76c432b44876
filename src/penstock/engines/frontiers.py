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
class Frontier:
    """How far a stream has come.

    watermark  no more rows with a time before this
    idle       silent for so long that others need not wait for it
    over       no more rows at all
    """

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Frontier(AFTER_ALL, over=True)


@dataclass(frozen=True, slots=True)
class WatermarkAdvance:
    """What a step is told in a round.

    before  the watermark that judges its rows
    after   the watermark that says what leaves
    over    no more rows can come
    """

    before: float
    after: float
    over: bool


class Frontiers:
    """The marks of all steps; `saved` takes up what another run had reached."""

    def __init__(self, plan: Plan, saved: Mapping[str, float] | None = None) -> None:
        self._steps = [step for step in plan if not isinstance(step.op, Source)]
        known = saved or {}
        self._inputs = {step.name: Frontier(known.get(step.name, BEFORE_ALL)) for step in self._steps}
        self._outputs: dict[str, Frontier] = {}
        self._output_delay = {step.name: output_delay(step) for step in self._steps}

    def advance(self, sources: Mapping[str, Frontier]) -> dict[str, WatermarkAdvance]:
        """A round goes by, after which the sources have come so far: what each other step is told."""
        self._outputs |= sources
        advances = {}
        for step in self._steps:
            before = self._inputs[step.name]
            after = merge_frontiers((self._frontier(ref) for ref in step.data_feeds), before)
            self._inputs[step.name] = after
            by = self._output_delay[step.name]
            self._outputs[step.name] = Frontier(after.watermark - by, after.idle, after.over)
            advances[step.name] = WatermarkAdvance(before.watermark, after.watermark, after.over)
        return advances

    def reached(self) -> dict[str, float]:
        """The watermark of every step's input, to be saved; those not moved yet are left out."""
        frontiers = {name: frontier.watermark for name, frontier in self._inputs.items()}
        return {name: frontier for name, frontier in frontiers.items() if frontier != BEFORE_ALL}

    def _frontier(self, ref: Ref) -> Frontier:
        frontier = self._outputs[ref.step]
        if ref.port in (LATE, LATE_RIGHT):
            return OVER if frontier.over else Frontier()
        return frontier


def merge_frontiers(frontiers: Iterable[Frontier], before: Frontier) -> Frontier:
    """The mark of streams that flow together: the least watermark of those not idle, never going back."""
    frontiers = list(frontiers)
    if len(frontiers) == 1 and not frontiers[0].idle and frontiers[0].watermark >= before.watermark:
        return frontiers[0]  # most streams come alone
    awake = [frontier.watermark for frontier in frontiers if not frontier.idle]
    watermark = max(before.watermark, min(awake)) if awake else before.watermark
    return Frontier(watermark, idle=not awake, over=all(frontier.over for frontier in frontiers))


def output_delay(step: Step) -> int:
    """How far the results of a step come behind the watermark of its input."""
    return step.op.resolved(step.up).lateness if isinstance(step.op, Windows) else 0
