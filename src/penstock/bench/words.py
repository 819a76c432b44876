"""Figures in words, the same in text and on the page: durations, rates, ratios, claims, the machine."""

from __future__ import annotations

from penstock.bench.result import Result, Verdict
from penstock.bench.spread import Spread


def duration(seconds: float) -> str:
    """A time with three significant digits and the unit that suits it.

    >>> duration(0.00012345)
    '123 us'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{three_digits(seconds * factor)} {unit}"
    raise AssertionError("the last unit takes every value")


def three_digits(value: float) -> str:
    """A number with three significant digits, never in powers of ten.

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


def ratio(spread: Spread | None) -> str:
    """A ratio with its quartiles: `1.50x (1.42 to 1.61)`."""
    if spread is None:
        return "no time measured"
    return f"{three_digits(spread.median)}x ({three_digits(spread.low)} to {three_digits(spread.high)})"


def verdict(one: Verdict) -> str:
    """A claim, whether it held, and by how much."""
    claim = one.claim
    word = "held" if one.held else "NOT HELD"
    if claim.over is None:
        return f"{word}: {claim.says} (measured {duration(one.measured)}, limit {duration(claim.at_most)})"
    return (
        f"{word}: {claim.says} (measured {three_digits(one.measured)}x, limit {three_digits(claim.at_most)}x)"
    )


def facts(result: Result) -> list[tuple[str, str]]:
    """What to know before believing a figure, as (name, value)."""
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
        ("method", f"{result.warm_up} warm-up and {result.rounds} timed rounds, ways interleaved"),
        ("collector", "on while timing" if result.collector else "off while timing"),
        ("checks", f"{sum(one.checks for one in result.figures)} answers checked, all right"),
    ]
