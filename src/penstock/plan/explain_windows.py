"""What explain() says of a window step beyond its columns: pattern, slices, algorithms, memory, and why.

All of it is known before a run (`operators/choices/`). An engine that makes windows of slices does as this
says; the reference engine, which is made to be right and not fast, gives the same rows its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.frozen import dataclass
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices.accumulators import (
    EXACT,
    AccumulatorKind,
    accumulators_of,
    uses_sketch,
    why_rows,
    width_of,
)
from penstock.operators.choices.device import AUTO, explain_method, why_not_by_itself, why_not_cuda
from penstock.operators.choices.folds import why_python
from penstock.operators.choices.patterns import DECOMPOSED
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.plan.plan import Step
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow, Window

NUMBER = 8  # bytes
BOUNDS = 2 * NUMBER  # the first and the last time of a session or of a pane of rows
Told = Iterator[tuple[str, str]]
"""(topic, what is said of it); a topic may come several times."""


def explain_windows(step: Step) -> Told:
    """The choices for a step; nothing where it has no windows."""
    op = step.op
    if not isinstance(op, Windows):
        return
    why = f"chosen because {op.because}" if op.because else "asked for by name"
    yield "pattern", f"{op.pattern}, {why}; {DECOMPOSED[op.pattern]}"
    told = _Windows.of(op, step.up)
    yield from told.slices()
    yield from told.algorithms()
    yield from told.folds()
    yield from told.rows()
    yield "device", _device(op, step.up)
    yield from told.memory()


def _device(op: Windows, up: Stream) -> str:
    if op.device != AUTO:
        return f"{op.device}, asked for by name"
    # Only a run can tell whether its readers number rows, and whether its machine has a device.
    why = why_not_cuda(op, up, totally_ordered=True) or why_not_by_itself(op)
    return f"cpu: {why}" if why else "a CUDA device where the run has one, else cpu"


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a step, and its aggregates by what is kept of them: numbers, a sketch, or rows."""

    op: Windows
    up: Stream
    windows: tuple[tuple[str | None, Window], ...]
    slicing: Mapping[TimeWindow, Slicing]
    numbers: Mapping[str, Aggregate]
    sketched: Mapping[str, Aggregate]
    of_rows: Mapping[str, Aggregate]

    @classmethod
    def of(cls, op: Windows, up: Stream) -> _Windows:
        windows = op.resolved(up).windows
        slicings = Slicing.groups([window for _, window in windows if isinstance(window, TimeWindow)])
        slicing = {window: each for each in slicings for window in each.windows}
        named = op.aggregates or {}
        numbers = {n: each for n, each in named.items() if why_rows(each, up, totally_ordered=False) is None}
        sketched = {
            n: each for n, each in named.items() if uses_sketch(each, [window for _, window in windows])
        }
        rows = {n: each for n, each in named.items() if n not in numbers and n not in sketched}
        return cls(op, up, windows, slicing, numbers, sketched, rows)

    def slices(self) -> Told:
        """How many slices a slide and a window have, and who shares them."""
        for label, window in self.windows:
            named = f"{label}: {window}" if label else str(window)
            if isinstance(window, CountWindow):
                yield "slices", f"{named}: none of time; rows wait to be put in order, then panes of rows"
            elif isinstance(window, SessionWindow):
                yield "slices", f"{named}: none; where a session ends depends on its rows"
            elif not self.numbers and not self.sketched:
                yield "slices", f"{named}: none; only rows are kept"
            else:
                slicing = self.slicing[window]
                shared = ", shared with other windows" if len(slicing.windows) > 1 else ""
                per_slide = _most_slices(slicing, window.every, window.every)
                in_window = _most_slices(slicing, window.size, window.every)
                yield "slices", f"{named}: {per_slide} per slide, {in_window} in a window{shared}"

    def algorithms(self) -> Told:
        """How windows are put together, with the aggregates that it holds for."""
        for about, longest in self._longest():
            together: dict[str, list[str]] = {}
            for name, aggregate in {**self.numbers, **self.sketched}.items():
                together.setdefault(self._way(name, longest), []).append(f"{name}={aggregate}")
            for way, names in together.items():
                yield "algorithm", f"{', '.join(names)}{about}: {way}"

    def _way(self, name: str, longest: int | None) -> str:
        if longest is None:
            return "kept per open session, as rows come"
        if name in self.sketched:
            return "a sketch per slice; a window's are merged"
        return explain_method(longest, exact=EXACT.issuperset(accumulators_of(self.numbers[name], self.up)))

    def _longest(self) -> Iterator[tuple[str, int | None]]:
        """(which windows, the most slices or panes of one), each different one once; None for sessions."""
        found: dict[int | None, list[str]] = {}
        for label, window in self.windows:
            longest = None
            if isinstance(window, TimeWindow):
                longest = self.slicing[window].longest
            elif isinstance(window, CountWindow):
                longest = Slicing.of([TimeWindow(window.size, window.every)]).longest
            found.setdefault(longest, []).append(label or str(window))
        for longest, names in found.items():
            yield f" in {', '.join(names)}" if len(found) > 1 else "", longest

    def folds(self) -> Told:
        """What is compiled, and why the rest is not."""
        for name, aggregate in (self.op.aggregates or {}).items():
            if isinstance(aggregate, Fold):
                why = why_python(aggregate, self.up)
                how = "is compiled, if Numba can" if why is None else f"runs in Python: {why}"
                yield "fold", f"{name}={aggregate} {how}"

    def rows(self) -> Told:
        """For what the rows of windows are kept, and why."""
        if self.op.function is not None:
            yield "keeps rows", f"for {self.op.function}: it sees whole windows"
        for name, aggregate in self.of_rows.items():
            why = why_rows(aggregate, self.up, totally_ordered=False)
            always = why_rows(aggregate, self.up, totally_ordered=True) is not None
            unless = "" if always else ", unless the reader numbers them"
            yield "keeps rows", f"for {name}={aggregate}{unless}: {why}"

    def memory(self) -> Told:
        """What grows with keys and what is open of their windows, and what with rows."""
        kinds = {type(window) for _, window in self.windows}
        cell, n = NUMBER * self._n_numbers(), len(self.sketched)
        sketch = f" and {n} sketch{'es' if n > 1 else ''}" if n else ""
        if self.numbers or self.sketched:
            if TimeWindow in kinds:
                tree = max(slicing.longest for slicing in self.slicing.values()) > 1
                again = ", and as much again once a B-PAT is built" if tree else ""
                yield "memory", f"{cell} bytes{sketch} per key and open slice{again}"
            if SessionWindow in kinds:
                yield "memory", f"{cell + BOUNDS} bytes{sketch} per key and open session"
            if CountWindow in kinds:
                yield "memory", f"{cell + BOUNDS} bytes per key and pane of rows"
        if CountWindow in kinds:
            yield "memory", "every row of a count window until the watermark puts it in order"
        if self.of_rows or self.op.function is not None:
            yield "memory", "every row until its last window leaves"

    def _n_numbers(self) -> int:
        """The numbers in a cell: rows are counted first, and aggregates of one value share registers."""
        kept: list[tuple[AccumulatorKind, Aggregate]] = []
        for aggregate in self.numbers.values():
            kept += [
                (register, aggregate)
                for register in accumulators_of(aggregate, self.up)
                if not any(register is other and _same_value(aggregate, known) for other, known in kept)
            ]
        return 1 + sum(width_of(register, aggregate) for register, aggregate in kept)


def _most_slices(slicing: Slicing, size: int, every: int) -> int:
    """The most slices in a stretch of a size that begins where a window does."""
    starts = range(0, max(slicing.period, every), every)
    return max(slicing.id_of(start + size) - slicing.id_of(start) for start in starts)


def _same_value(one: Aggregate, other: Aggregate) -> bool:
    """Whether two aggregates are of one value, so that they share registers of one kind."""
    if one.value is None or other.value is None:
        return one.value is other.value and not isinstance(one, Fold)
    return one.value.same_as(other.value)
