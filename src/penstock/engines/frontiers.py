"""Frontiers: how far each stream of a plan has progressed, round by round (Timely's word).

Engines pass the resulting watermarks to stages. The frontier of a source is its watermark; merged streams
have the least of those that are not idle; a window step delays its output by its allowed lateness, a join
also by as long as a row may wait for a partner. Late rows
can have any age, so their port promises nothing but its end.

Invariant: a frontier never moves back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.frozen import Frozen
from penstock.operators.ends import Source
from penstock.operators.op import JOIN, LATE, LATE_RIGHT
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL


class Frontier(Frozen):
    """How far a stream has progressed.

    watermark  no more rows will have a time before this
    idle       the stream has been silent long enough for others not to wait for it
    over       no more rows will come at all
    """

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Frontier(AFTER_ALL, over=True)


class WatermarkAdvance(Frozen):
    """How the watermark of a step's input advances in a round.

    before  the watermark that decides which rows of the round are late
    after   the watermark that decides which windows close
    over    no more rows can come
    """

    before: float
    after: float
    over: bool


class Frontiers:
    """The frontiers of all steps of a plan.

    saved  step -> the watermark of its input where an earlier run stopped
    """

    def __init__(self, plan: Plan, saved: Mapping[str, float] | None = None) -> None:
        self._steps = [step for step in plan if not isinstance(step.op, Source)]
        saved = saved or {}
        self._inputs = {step.name: Frontier(saved.get(step.name, BEFORE_ALL)) for step in self._steps}
        self._outputs: dict[str, Frontier] = {}
        self._output_delay = {step.name: output_delay(step) for step in self._steps}

    def advance(self, sources: Mapping[str, Frontier]) -> dict[str, WatermarkAdvance]:
        """Advance all steps after a round of the sources; return the advance of each other step."""
        self._outputs |= sources
        advances = {}
        for step in self._steps:
            before = self._inputs[step.name]
            after = merge_frontiers((self._frontier_of(ref) for ref in step.data_feeds), before)
            self._inputs[step.name] = after
            delay = self._output_delay[step.name]
            self._outputs[step.name] = Frontier(after.watermark - delay, after.idle, after.over)
            advances[step.name] = WatermarkAdvance(before.watermark, after.watermark, after.over)
        return advances

    def watermarks(self) -> dict[str, float]:
        """Return the watermark of every step's input, to be saved; steps that have none yet are left out."""
        watermarks = {name: frontier.watermark for name, frontier in self._inputs.items()}
        return {name: watermark for name, watermark in watermarks.items() if watermark != BEFORE_ALL}

    def _frontier_of(self, ref: Ref) -> Frontier:
        frontier = self._outputs[ref.step]
        if ref.port in (LATE, LATE_RIGHT):
            return OVER if frontier.over else Frontier()
        return frontier


def merge_frontiers(frontiers: Iterable[Frontier], before: Frontier) -> Frontier:
    """Return the frontier of merged streams: the least watermark of those not idle, never going back."""
    frontiers = list(frontiers)
    if len(frontiers) == 1 and not frontiers[0].idle and frontiers[0].watermark >= before.watermark:
        return frontiers[0]  # Why: most steps read one stream, and this is called for every row of one
    active = [frontier.watermark for frontier in frontiers if not frontier.idle]
    watermark = max(before.watermark, min(active)) if active else before.watermark
    return Frontier(watermark, idle=not active, over=all(frontier.over for frontier in frontiers))


def output_delay(step: Step) -> int:
    """Return how far, in microseconds, a step's output trails the watermark of its input."""
    if isinstance(step.op, Windows):
        return step.op.resolve(step.up).lateness
    if step.op.kind == JOIN:
        from penstock.operators.stream_join import StreamJoin

        assert isinstance(step.op, StreamJoin), "the only operator of its kind"
        return step.op.output_delay(*(port.stream for port in step.inputs))
    return 0
