"""Results and comparisons as plain text: claims and ratios first, absolute figures second.

The `format_` functions for durations, rates, ratios and claims are shared with the HTML page.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.compare import Change, Comparison
from bench.machine import Machine
from bench.result import Result, Spread, Verdict, spread_of


def format_result(result: Result) -> str:
    """Return a result as text for a terminal."""
    parts = [f"{result.workload}: {result.about}"]
    if result.verdicts:
        claims = [format_verdict(one) for one in result.verdicts]
        parts.append("\n".join(f"  {line}" for line in (*claims, format_tally(result))))
    if any(len(result.of_case(case)) > 1 for case in result.cases):
        parts.append(_format_ratios(result))
    parts.append(_format_figures(result))
    if result.remarks:
        parts.append("\n".join(f"  not measured: {remark}" for remark in result.remarks))
    parts.append(align_columns([[f"  {name}", value] for name, value in list_facts(result)]))
    if result.machine.busy:
        parts.append(f"  note: the machine was busy before the first round (load {result.machine.load})")
    if result.machine.is_disturbed:
        parts.append(
            f"  note: the host of this machine ran others for {result.machine.stolen:.0%} of the time"
        )
    return "\n\n".join(parts)


def format_comparison(comparison: Comparison) -> str:
    """Return a comparison as text for a terminal, with the ratio of the second time to the first."""
    rows = [["case", "way", "change", "before", "after", ""]]
    rows += [_change_row(change) for change in comparison.changes]
    parts = [f"{comparison.workload}: after against before", align_columns(rows)]
    for cells, which in ((comparison.only_before, "first"), (comparison.only_after, "second")):
        parts += [f'  only in the {which}: "{cell.way}" on "{cell.case}"' for cell in cells]
    parts += [f"  warning: {warning}" for warning in comparison.warnings]
    parts.append(
        f"within noise: medians less than {comparison.floor:.0%} apart, or overlapping inter-quartile ranges"
    )
    return "\n".join(parts)


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as aligned columns, two spaces apart.

    >>> print(align_columns([["a", "bb"], ["ccc", "d"]]))
    a    bb
    ccc  d
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _change_row(change: Change) -> list[str]:
    return [
        change.cell.case,
        change.cell.way,
        f"{change.ratio:.2f}x",
        format_duration(change.before.seconds.median),
        format_duration(change.after.seconds.median),
        change.judgement,
    ]


def _format_ratios(result: Result) -> str:
    rows = [["case", "way", "time against the first way (quartiles)"]]
    for case in result.cases:
        rows += [
            [case, one.cell.way, format_ratio(result.ratio(one)) if at else "1 (the measure)"]
            for at, one in enumerate(result.of_case(case))
        ]
    return align_columns(rows)


def _format_figures(result: Result) -> str:
    rows = [["case", "way", "median", "quartiles", "least", "rate"]]
    for one in result.figures:
        time = one.seconds
        rates = ", ".join(
            [format_rate(value, unit) for unit, value in one.rates().items()]
            + [f"{name} {format_amount(spread_of(noted).median, name)}" for name, noted in one.notes.items()]
        )
        quartiles = f"{format_duration(time.low)} to {format_duration(time.high)}"
        rows.append([*one.cell, format_duration(time.median), quartiles, format_duration(time.least), rates])
    return align_columns(rows)


def format_duration(seconds: float) -> str:
    """Return a duration with three significant digits and a suitable unit.

    >>> format_duration(0.00012345)
    '123 us'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{format_number(seconds * factor)} {unit}"
    raise AssertionError("the last unit takes every value")


def format_number(value: float) -> str:
    """Return a number with three significant digits, never in powers of ten.

    >>> format_number(1234567.0), format_number(0.1234)
    ('1,234,567', '0.123')
    """
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def format_rate(per_second: float, unit: str) -> str:
    """Return work per second, such as `1.25 M rows/s`."""
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= factor:
            return f"{format_number(per_second / factor)} {letter} {unit}/s"
    return f"{format_number(per_second)} {unit}/s"


def format_amount(value: float, measure: str) -> str:
    """Return a value of a measure, named as in `Chart.up`, without its unit except for times.

    >>> format_amount(1_500_000.0, "rows/s"), format_amount(0.0015, "s"), format_amount(0.0, "s")
    ('1.50 M', '1.50 ms', '0')
    """
    if not value:
        return "0"
    if measure == "s" or measure.endswith("(s)"):
        return format_duration(value)
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{format_number(value / factor)} {letter}"
    return format_number(value)


def format_tick(value: float, measure: str) -> str:
    """Return the value of a tick on an axis, without trailing zeros.

    >>> format_tick(1_500_000.0, "rows/s"), format_tick(0.01, "s"), format_tick(200.0, "slices")
    ('1.5 M', '10 ms', '200')
    """
    number, _, unit = format_amount(value, measure).partition(" ")
    short = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{short} {unit}".strip()


def format_ratio(spread: Spread | None) -> str:
    """Return a ratio with its quartiles: `1.50x (1.42 to 1.61)`."""
    if spread is None:
        return "no time measured"
    return f"{format_number(spread.median)}x ({format_number(spread.low)} to {format_number(spread.high)})"


def format_verdict(one: Verdict) -> str:
    """Return a claim, whether it held, the measured value with its quartiles, and the bound."""
    figure, quartiles, wanted = format_bounds(one)
    word = "HELD" if one.held else "NOT HELD"
    how = " at the first quartile" if one.claim.narrow else ""
    return f"{word}: {one.claim.says} (measured {figure}{how}, quartiles {quartiles}; wanted {wanted})"


def format_bounds(one: Verdict) -> tuple[str, str, str]:
    """Return what was measured of a claim, its quartiles, and what was wanted."""
    claim = one.claim
    bound = "at least" if claim.speed else "at most"
    measured, low, high, wanted = (
        _format_measured(one, value) for value in (one.measured, one.low, one.high, claim.at_most)
    )
    # Fewer seconds are more units per second: the quartiles change places.
    spread = f"{high} to {low}" if claim.speed else f"{low} to {high}"
    return measured, spread, f"{bound} {wanted}"


def format_tally(result: Result) -> str:
    """Return the number of claims that held: `8 of 10 claims held`."""
    return f"{result.n_held} of {len(result.verdicts)} claims held"


def _format_measured(one: Verdict, value: float) -> str:
    claim = one.claim
    if claim.over is None and claim.note:
        return format_amount(value, claim.note)
    if claim.over is None:
        return format_rate(one.work / value, claim.speed) if claim.speed and value else format_duration(value)
    times = 1 / value if claim.speed and value else value
    return f"{format_number(times)}x"


def _describe_method(result: Result) -> str:
    method = f"{result.warm_up} warm-up and {result.rounds} timed rounds, ways interleaved"
    most = max(len(one.samples_ns) for one in result.figures)
    return f"{method}; {most} rounds of what narrow claims compare" if most > result.rounds else method


def _describe_cores(machine: Machine) -> str:
    sleep = "kept awake" if machine.awake else "may sleep"
    if machine.stolen is None:
        return sleep
    return f"{sleep}; {machine.stolen:.1%} of the time that they were wanted for went to other machines"


def _describe_speed(machine: Machine) -> str:
    return "unknown" if machine.step_ns is None else f"{machine.step_ns:.0f} ns a step of plain Python"


def list_facts(result: Result) -> list[tuple[str, str]]:
    """Return the facts that a figure depends on, as (name, value)."""
    machine, commit = result.machine, result.commit
    return [
        ("processor", f"{machine.cpu}, {machine.cores} cores"),
        ("memory", f"{machine.memory_bytes / 2**30:.1f} GiB"),
        ("system", machine.system),
        ("load before", "unknown" if machine.load is None else f"{machine.load:.2f}"),
        ("cores", _describe_cores(machine)),
        ("speed", _describe_speed(machine)),
        ("versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())),
        (
            "commit",
            "unknown" if commit is None else commit.id[:12] + (" with changes" if commit.dirty else ""),
        ),
        ("measured", f"{result.started_at}, size {result.size}, seed {result.seed}"),
        ("method", _describe_method(result)),
        ("collector", "on while timing" if result.collector else "off while timing"),
        ("checks", f"{sum(one.checks for one in result.figures)} answers checked, all right"),
    ]
