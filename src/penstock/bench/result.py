"""What a measured workload is worth: every sample, and the figures that follow from them.

Ratios are taken round by round against the first way: both were run within the same moment of the
machine's life, so slow drift (heat, neighbours) cancels out. Holds no paths, host or user names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.bench.machine import Commit, Machine
from penstock.bench.spread import Spread, spread
from penstock.bench.workload import Cell, Claim, Size


@dataclass(frozen=True, slots=True)
class Figures:
    """All samples of one way on one case, in the order of the rounds."""

    cell: Cell
    units: Mapping[str, int]
    warm_up_ns: tuple[int, ...]
    samples_ns: tuple[int, ...]
    checks: int

    @property
    def ns(self) -> Spread:
        """The timed samples in nanoseconds, exact: what ratios are taken of."""
        return spread(self.samples_ns)

    @property
    def seconds(self) -> Spread:
        """The timed samples in seconds, to be shown."""
        return spread([ns / 1e9 for ns in self.samples_ns])

    def rates(self) -> dict[str, float]:
        """Units of work per second at the median; empty when the clock did not move."""
        median = self.seconds.median
        return {unit: n / median for unit, n in self.units.items()} if median else {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what was measured: seconds, or times another cell's median."""

    claim: Claim
    measured: float
    held: bool


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a workload."""

    workload: str
    about: str
    size: Size
    seed: int
    rounds: int
    warm_up: int
    collector: bool
    started_at: str
    machine: Machine
    versions: Mapping[str, str]
    commit: Commit | None
    figures: tuple[Figures, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def cases(self) -> list[str]:
        """The cases, in the workload's order."""
        return list(dict.fromkeys(one.cell.case for one in self.figures))

    def of_case(self, case: str) -> list[Figures]:
        """The figures of one case; the first is the way the others are measured against."""
        return [one for one in self.figures if one.cell.case == case]

    def ratio(self, figures: Figures) -> Spread | None:
        """This way's time as a multiple of the first way's, paired by round; None if that took no time."""
        base = self.of_case(figures.cell.case)[0]
        pairs = list(zip(figures.samples_ns, base.samples_ns, strict=True))
        if any(below == 0 for _, below in pairs):
            return None
        return spread([above / below for above, below in pairs])


def judge(claim: Claim, figures: Mapping[Cell, Figures]) -> Verdict:
    """Hold a claim against the medians."""
    median = figures[claim.cell].ns.median
    if claim.over is None:
        measured = median / 1e9
    else:
        below = figures[claim.over].ns.median
        measured = median / below if below else float("inf")
    return Verdict(claim, measured, measured <= claim.at_most)
