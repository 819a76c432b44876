"""What a measured workload is worth: every sample, and the figures that follow from them.

Ratios are taken round by round against the first way: both were run within the same moment of the
machine's life, so slow drift (heat, neighbours) cancels out. Holds no paths, host or user names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.cell import Cell
from bench.chart import Chart
from bench.machine import Commit, Machine
from bench.spread import Spread, spread
from bench.workload import Claim, Size


@dataclass(frozen=True, slots=True)
class Figures:
    """All samples of one way on one case, in the order of the rounds; `notes` has one per timed round too."""

    cell: Cell
    units: Mapping[str, int]
    warm_up_ns: tuple[int, ...]
    samples_ns: tuple[int, ...]
    checks: int
    notes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ns(self) -> Spread:
        """Return the timed samples in nanoseconds, exact: what ratios are taken of."""
        return spread(self.samples_ns)

    @property
    def seconds(self) -> Spread:
        """Return the timed samples in seconds, to be shown."""
        return spread([ns / 1e9 for ns in self.samples_ns])

    def rates(self) -> dict[str, float]:
        """Units of work per second at the median; empty when the clock did not move."""
        median = self.seconds.median
        return {unit: n / median for unit, n in self.units.items()} if median else {}

    def of(self, measure: str) -> Spread | None:
        """The samples of a measure as `Chart.up` names it; None where there are none, or no time passed."""
        if measure == "s":
            return self.seconds
        unit = measure.removesuffix("/s")
        if unit == measure:
            return spread(self.notes[measure]) if self.notes.get(measure) else None
        if unit not in self.units or not all(self.samples_ns):
            return None
        return spread([self.units[unit] * 1e9 / ns for ns in self.samples_ns])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what was measured: seconds, or times another cell.

    low, high  the quartiles of the same, round by round
    work       units of work in one run of the cell, where the claim is told as a speed
    """

    claim: Claim
    measured: float
    held: bool
    low: float
    high: float
    work: int = 0


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
    charts: tuple[Chart, ...] = ()

    @property
    def n_held(self) -> int:
        """Return the number of of the claims held."""
        return sum(one.held for one in self.verdicts)

    @property
    def cases(self) -> list[str]:
        """Return the cases, in the workload's order."""
        return list(dict.fromkeys(one.cell.case for one in self.figures))

    def of_case(self, case: str) -> list[Figures]:
        """Return the figures of one case; the first is the way the others are measured against."""
        return [one for one in self.figures if one.cell.case == case]

    def ratio(self, figures: Figures) -> Spread | None:
        """This way's time as a multiple of the first way's, paired by round; None if that took no time."""
        base = self.of_case(figures.cell.case)[0]
        pairs = _together(figures.samples_ns, base.samples_ns)
        if any(below == 0 for _, below in pairs):
            return None
        return spread([above / below for above, below in pairs])


def judge(claim: Claim, figures: Mapping[Cell, Figures]) -> Verdict:
    """Hold a claim against the medians, or against the first quartiles where it is narrow."""
    one = figures[claim.cell]
    mine = _samples(one, claim)
    if claim.over is None:
        measured, rounds = _middle(mine, claim), spread(mine)
    else:
        theirs = _samples(figures[claim.over], claim)
        measured = _times(_middle(mine, claim), _middle(theirs, claim))
        rounds = spread([_times(*pair) for pair in _together(mine, theirs)])
    work = one.units.get(claim.speed, 0)
    return Verdict(claim, measured, measured <= claim.at_most, rounds.low, rounds.high, work)


def _samples(figures: Figures, claim: Claim) -> Sequence[float]:
    """Return what a claim compares, round by round: a note, seconds, or nanoseconds for exact ratios."""
    if claim.note:
        return figures.notes[claim.note]
    return figures.samples_ns if claim.over else [ns / 1e9 for ns in figures.samples_ns]


def _together(mine: Sequence[float], theirs: Sequence[float]) -> list[tuple[float, float]]:
    """Return what two took in the same rounds: the first ones, since what narrow claims compare has more."""
    return list(zip(mine, theirs, strict=False))


def _middle(samples: Sequence[float], claim: Claim) -> float:
    found = spread(samples)
    return found.low if claim.narrow else found.median


def _times(above: float, below: float) -> float:
    return above / below if below else float("inf")
