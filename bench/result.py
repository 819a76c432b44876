"""The result of a measured workload: every sample, the figures that follow from them, and its JSON form.

Ratios are taken round by round against the first way: both ran at about the same time, so slow drift of the
machine (heat, other users) cancels out. A result holds no paths, host or user names. Its JSON has a schema
version and every sample; anything else is refused by `load_result`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import Commit, Machine
from bench.workload import BenchError, Cell, Chart, Claim, Line, Point, Size


@dataclass(frozen=True, slots=True)
class Spread:
    """A summary of samples: least, quartiles, median and greatest."""

    least: float
    low: float
    median: float
    high: float
    greatest: float

    def overlaps(self, other: Spread) -> bool:
        """Return whether the inter-quartile ranges share a point."""
        return self.low <= other.high and other.low <= self.high


def spread_of(samples: Sequence[float]) -> Spread:
    """Summarise samples; a quartile between two samples is interpolated linearly.

    >>> spread_of([1, 2, 3, 4, 100]).median
    3.0
    """
    assert samples, "a spread needs at least one sample"
    ranked = sorted(samples)
    return Spread(*(_quantile(ranked, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)))


def _quantile(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return float(ranked[below] + (ranked[above] - ranked[below]) * (place - below))


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
        """Return the spread of the timed samples in nanoseconds, exact for ratios."""
        return spread_of(self.samples_ns)

    @property
    def seconds(self) -> Spread:
        """Return the spread of the timed samples in seconds, for display."""
        return spread_of([ns / 1e9 for ns in self.samples_ns])

    def rates(self) -> dict[str, float]:
        """Return the units of work per second at the median; empty if the clock did not move."""
        median = self.seconds.median
        return {unit: n / median for unit, n in self.units.items()} if median else {}

    def of(self, measure: str) -> Spread | None:
        """Return the spread of a measure named as in `Chart.up`; None without samples or time."""
        if measure == "s":
            return self.seconds
        unit = measure.removesuffix("/s")
        if unit == measure:
            return spread_of(self.notes[measure]) if self.notes.get(measure) else None
        if unit not in self.units or not all(self.samples_ns):
            return None
        return spread_of([self.units[unit] * 1e9 / ns for ns in self.samples_ns])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what was measured: seconds, or times another cell.

    low, high  the quartiles of the same, round by round
    work       units of work in one run of the cell, if the claim is about a speed
    """

    claim: Claim
    measured: float
    held: bool
    low: float
    high: float
    work: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a workload; `command` is the one that measures it again, of a result that is kept."""

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
    command: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def n_held(self) -> int:
        """Return the number of claims that held."""
        return sum(one.held for one in self.verdicts)

    @property
    def cases(self) -> list[str]:
        """Return the cases, in the workload's order."""
        return list(dict.fromkeys(one.cell.case for one in self.figures))

    def of_case(self, case: str) -> list[Figures]:
        """Return the figures of one case; the first is the way the others are measured against."""
        return [one for one in self.figures if one.cell.case == case]

    def ratio(self, figures: Figures) -> Spread | None:
        """Return the time over that of the first way, paired by round; None if the first took no time."""
        base = self.of_case(figures.cell.case)[0]
        pairs = _pair_rounds(figures.samples_ns, base.samples_ns)
        if any(below == 0 for _, below in pairs):
            return None
        return spread_of([above / below for above, below in pairs])


def evaluate_claim(claim: Claim, figures: Mapping[Cell, Figures]) -> Verdict:
    """Compare a claim with the medians, or with the first quartiles if the claim is narrow."""
    one = figures[claim.cell]
    samples = _samples_of(one, claim)
    if claim.over is None:
        measured, rounds = _typical(samples, claim), spread_of(samples)
    else:
        base_samples = _samples_of(figures[claim.over], claim)
        measured = _ratio_of(_typical(samples, claim), _typical(base_samples, claim))
        rounds = spread_of([_ratio_of(*pair) for pair in _pair_rounds(samples, base_samples)])
    work = one.units.get(claim.speed, 0)
    measured = abs(measured) if claim.both_sides else measured
    return Verdict(claim, measured, measured <= claim.at_most, rounds.low, rounds.high, work)


def _samples_of(figures: Figures, claim: Claim) -> Sequence[float]:
    """Return what a claim compares, by round: a note, seconds, or nanoseconds for exact ratios."""
    if claim.note:
        return figures.notes[claim.note]
    return figures.samples_ns if claim.over else [ns / 1e9 for ns in figures.samples_ns]


def _pair_rounds(one: Sequence[float], other: Sequence[float]) -> list[tuple[float, float]]:
    """Pair the samples of the same rounds; the further rounds of narrow claims have no partner."""
    return list(zip(one, other, strict=False))


def _typical(samples: Sequence[float], claim: Claim) -> float:
    spread = spread_of(samples)
    return spread.low if claim.narrow else spread.median


def _ratio_of(above: float, below: float) -> float:
    return above / below if below else float("inf")


KIND = "penstock-bench"
SCHEMA = 2


def to_json(result: Result) -> str:
    """Return the whole result as JSON text, one field per line."""
    fields: dict[str, Any] = {"kind": KIND, "schema": SCHEMA, **asdict(result)}
    fields["figures"] = [_figures_to_json(one) for one in result.figures]
    fields["verdicts"] = [_verdict_to_json(verdict) for verdict in result.verdicts]
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def load_result(path: Path) -> Result:
    """Read a result that `to_json` wrote."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(
            f'cannot read the result "{path}"',
            detail=error.strerror,
            hint="write one with: python -m bench NAME --json FILE",
        ) from error
    except ValueError as error:
        raise BenchError(f'"{path}" is not a JSON file', detail=str(error)) from error
    _require_ours(path, fields)
    try:
        return _result_from_json(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f'the result "{path}" is damaged',
            detail=f"{type(error).__name__}: {error}",
            hint="measure it again",
        ) from error


def _require_ours(path: Path, fields: Any) -> None:
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise BenchError(
            f'"{path}" is not a benchmark result', hint="write one with: python -m bench NAME --json FILE"
        )
    if fields.get("schema") != SCHEMA:
        raise BenchError(
            f'"{path}" has schema version {fields.get("schema")}; this Penstock reads version {SCHEMA}',
            hint="measure it again with this version",
        )


def _figures_to_json(one: Figures) -> dict[str, Any]:
    return {
        "case": one.cell.case,
        "way": one.cell.way,
        "units": dict(one.units),
        "median_seconds": one.seconds.median,
        "warm_up_ns": list(one.warm_up_ns),
        "samples_ns": list(one.samples_ns),
        "checks": one.checks,
        "notes": {name: list(samples) for name, samples in one.notes.items()},
    }


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    return {
        "says": claim.says,
        "cell": list(claim.cell),
        "over": list(claim.over) if claim.over else None,
        "at_most": claim.at_most,
        "speed": claim.speed,
        "note": claim.note,
        "narrow": claim.narrow,
        "both_sides": claim.both_sides,
        "measured": verdict.measured,
        "held": verdict.held,
        "low": verdict.low,
        "high": verdict.high,
        "work": verdict.work,
    }


def _result_from_json(fields: dict[str, Any]) -> Result:
    plain = {name: value for name, value in fields.items() if name not in ("kind", "schema")}
    return Result(
        **plain
        | {
            "machine": Machine(**fields["machine"]),
            "commit": Commit(**fields["commit"]) if fields["commit"] else None,
            "figures": tuple(_figures_from_json(one) for one in fields["figures"]),
            "verdicts": tuple(_verdict_from_json(one) for one in fields["verdicts"]),
            "charts": tuple(_chart_from_json(one) for one in fields["charts"]),
            "remarks": tuple(fields.get("remarks", ())),
        }
    )


def _figures_from_json(one: dict[str, Any]) -> Figures:
    return Figures(
        cell=Cell(one["case"], one["way"]),
        units=one["units"],
        warm_up_ns=tuple(one["warm_up_ns"]),
        samples_ns=tuple(one["samples_ns"]),
        checks=one["checks"],
        notes={name: tuple(samples) for name, samples in one["notes"].items()},
    )


def _verdict_from_json(one: dict[str, Any]) -> Verdict:
    over = Cell(*one["over"]) if one["over"] else None
    how = one["speed"], one["note"], one.get("narrow", False), one.get("both_sides", False)
    claim = Claim(one["says"], Cell(*one["cell"]), one["at_most"], over, *how)
    return Verdict(claim, one["measured"], one["held"], one["low"], one["high"], one["work"])


def _chart_from_json(one: dict[str, Any]) -> Chart:
    lines = tuple(
        Line(line["name"], tuple(_point_from_json(point) for point in line["points"]), line["style"])
        for line in one["lines"]
    )
    return Chart(**one | {"lines": lines})


def _point_from_json(one: dict[str, Any]) -> Point:
    return Point(one["at"], one["label"], Cell(*one["cell"]))
