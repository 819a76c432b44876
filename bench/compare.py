"""Comparison of two results of one workload: faster, slower, or within noise.

A difference counts only if it exceeds a floor (5 % by default) and the inter-quartile ranges do not overlap.
With fewer than five rounds quartiles say little, so the whole ranges must be apart. That is a rule of thumb,
not a test of significance: repeat a surprising verdict before believing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.result import Figures, Result
from bench.workload import BenchError, Cell

FLOOR = 0.05
FEW = 5

Judgement = Literal["faster", "slower", "within noise"]


@dataclass(frozen=True, slots=True)
class Change:
    """One cell in both results: `ratio` is the second median over the first, so below 1 is faster."""

    cell: Cell
    before: Figures
    after: Figures
    ratio: float
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes between two results, the cells that only one of them has, and warnings."""

    workload: str
    changes: tuple[Change, ...]
    only_before: tuple[Cell, ...]
    only_after: tuple[Cell, ...]
    warnings: tuple[str, ...]
    floor: float

    @property
    def slower(self) -> bool:
        """Return whether any cell became slower."""
        return any(change.judgement == "slower" for change in self.changes)


def compare(before: Result, after: Result, *, floor: float = FLOOR) -> Comparison:
    """Compare the second result with the first, cell by cell."""
    _require_comparable(before, after)
    old = {one.cell: one for one in before.figures}
    new = {one.cell: one for one in after.figures}
    return Comparison(
        workload=before.workload,
        changes=tuple(_build_change(old[cell], new[cell], floor) for cell in old if cell in new),
        only_before=tuple(cell for cell in old if cell not in new),
        only_after=tuple(cell for cell in new if cell not in old),
        warnings=tuple(_collect_warnings(before, after)),
        floor=floor,
    )


def _require_comparable(before: Result, after: Result) -> None:
    for field, one, other in (
        ("workload", before.workload, after.workload),
        ("size", before.size, after.size),
        ("seed", before.seed, after.seed),
    ):
        if one != other:
            raise BenchError(
                f'results of {field} "{one}" and {field} "{other}" cannot be compared',
                detail="different work was timed",
                hint=f"measure both with the same {field}",
            )


def _build_change(before: Figures, after: Figures, floor: float) -> Change:
    old, new = before.ns.median, after.ns.median
    ratio = new / old if old else (1.0 if new == old else float("inf"))
    return Change(before.cell, before, after, ratio, _classify(before, after, ratio, floor))


def _classify(before: Figures, after: Figures, ratio: float, floor: float) -> Judgement:
    if abs(ratio - 1) <= floor or _is_noise(before, after):
        return "within noise"
    return "faster" if ratio < 1 else "slower"


def _is_noise(before: Figures, after: Figures) -> bool:
    old, new = before.ns, after.ns
    if min(len(before.samples_ns), len(after.samples_ns)) < FEW:
        return old.least <= new.greatest and new.least <= old.greatest
    return old.overlaps(new)


def _collect_warnings(before: Result, after: Result) -> list[str]:
    warnings = []
    if not before.machine.same_hardware(after.machine):
        warnings.append(
            f"the machines differ ({before.machine.cpu}, {before.machine.cores} cores; "
            f"{after.machine.cpu}, {after.machine.cores} cores): the change may be theirs"
        )
    warnings += [
        f"{name} differs: {before.versions.get(name)} before, {after.versions.get(name)} after"
        for name in sorted({*before.versions, *after.versions} - {"penstock"})
        if before.versions.get(name) != after.versions.get(name)
    ]
    for which, result in (("first", before), ("second", after)):
        if result.machine.busy:
            warnings.append(
                f"the machine was busy when the {which} result was measured (load {result.machine.load})"
            )
        if result.rounds < FEW:
            warnings.append(f"the {which} result has only {result.rounds} rounds: too few to trust quartiles")
    return warnings
