"""Figures in words, the same in text and on the page: durations, rates, ratios, claims, the machine."""

from __future__ import annotations

from bench.result import Result, Verdict
from bench.spread import Spread


def duration(seconds: float) -> str:
    """Return a time with three significant digits and the unit that suits it.

    >>> duration(0.00012345)
    '123 us'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{three_digits(seconds * factor)} {unit}"
    raise AssertionError("the last unit takes every value")


def three_digits(value: float) -> str:
    """Return a number with three significant digits, never in powers of ten.

    >>> three_digits(1234567.0), three_digits(0.1234)
    ('1,234,567', '0.123')
    """
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def rate(per_second: float, unit: str) -> str:
    """Work per second, such as `1.25 M rows/s`."""
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= factor:
            return f"{three_digits(per_second / factor)} {letter} {unit}/s"
    return f"{three_digits(per_second)} {unit}/s"


def amount(value: float, measure: str) -> str:
    """A value of a measure as `Chart.up` names it, without its unit but for times; for axes and tables.

    >>> amount(1_500_000.0, "rows/s"), amount(0.0015, "s"), amount(0.0, "s")
    ('1.50 M', '1.50 ms', '0')
    """
    if not value:
        return "0"
    if measure == "s" or measure.endswith("(s)"):
        return duration(value)
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{three_digits(value / factor)} {letter}"
    return three_digits(value)


def mark(value: float, measure: str) -> str:
    """Return the same for a round place on an axis, without zeros that say nothing.

    >>> mark(1_500_000.0, "rows/s"), mark(0.01, "s"), mark(200.0, "slices")
    ('1.5 M', '10 ms', '200')
    """
    number, _, unit = amount(value, measure).partition(" ")
    short = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{short} {unit}".strip()


def ratio(spread: Spread | None) -> str:
    """Return a ratio with its quartiles: `1.50x (1.42 to 1.61)`."""
    if spread is None:
        return "no time measured"
    return f"{three_digits(spread.median)}x ({three_digits(spread.low)} to {three_digits(spread.high)})"


def verdict(one: Verdict) -> str:
    """Return a claim, whether it held, what was measured with its quartiles, and what was wanted."""
    claim = one.claim
    word = "HELD" if one.held else "NOT HELD"
    bound = "at least" if claim.speed else "at most"
    measured, low, high, wanted = (
        _told(one, value) for value in (one.measured, one.low, one.high, claim.at_most)
    )
    # Fewer seconds are more units per second: the quartiles change places.
    spread = f"{high} to {low}" if claim.speed else f"{low} to {high}"
    how = " at the first quartile" if claim.narrow else ""
    return f"{word}: {claim.says} (measured {measured}{how}, quartiles {spread}; wanted {bound} {wanted})"


def tally(result: Result) -> str:
    """Return the number of of the claims held: `8 of 10 claims held`."""
    return f"{result.n_held} of {len(result.verdicts)} claims held"


def _told(one: Verdict, value: float) -> str:
    claim = one.claim
    if claim.over is None and claim.note:
        return amount(value, claim.note)
    if claim.over is None:
        return rate(one.work / value, claim.speed) if claim.speed and value else duration(value)
    times = 1 / value if claim.speed and value else value
    return f"{three_digits(times)}x"


def _method(result: Result) -> str:
    told = f"{result.warm_up} warm-up and {result.rounds} timed rounds, ways interleaved"
    most = max(len(one.samples_ns) for one in result.figures)
    return f"{told}; {most} rounds of what narrow claims compare" if most > result.rounds else told


def facts(result: Result) -> list[tuple[str, str]]:
    """Return what to know before believing a figure, as (name, value)."""
    machine, commit = result.machine, result.commit
    return [
        ("processor", f"{machine.cpu}, {machine.cores} cores"),
        ("memory", f"{machine.memory_bytes / 2**30:.1f} GiB"),
        ("system", machine.system),
        ("load before", "unknown" if machine.load is None else f"{machine.load:.2f}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())),
        (
            "commit",
            "unknown" if commit is None else commit.id[:12] + (" with changes" if commit.dirty else ""),
        ),
        ("measured", f"{result.started_at}, size {result.size}, seed {result.seed}"),
        ("method", _method(result)),
        ("collector", "on while timing" if result.collector else "off while timing"),
        ("checks", f"{sum(one.checks for one in result.figures)} answers checked, all right"),
    ]
