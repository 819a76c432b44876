"""Results and comparisons as plain text: claims and ratios first, absolute figures second."""

from __future__ import annotations

from collections.abc import Sequence

from bench import words
from bench.comparison import Change, Comparison
from bench.result import Result
from bench.spread import spread


def report(result: Result) -> str:
    """Return a result for a terminal."""
    parts = [f"{result.workload}: {result.about}"]
    if result.verdicts:
        told = [words.verdict(one) for one in result.verdicts]
        parts.append("\n".join(f"  {line}" for line in (*told, words.tally(result))))
    if any(len(result.of_case(case)) > 1 for case in result.cases):
        parts.append(_ratios(result))
    parts.append(_absolute(result))
    parts.append(columns([[f"  {name}", value] for name, value in words.facts(result)]))
    if result.machine.busy:
        parts.append(f"  note: the machine was busy before the first round (load {result.machine.load})")
    return "\n\n".join(parts)


def report_comparison(comparison: Comparison) -> str:
    """Return a comparison for a terminal; the time of the second result over the first."""
    rows = [["case", "way", "change", "before", "after", ""]]
    rows += [_change_row(change) for change in comparison.changes]
    parts = [f"{comparison.workload}: after against before", columns(rows)]
    for cells, which in ((comparison.only_before, "first"), (comparison.only_after, "second")):
        parts += [f'  only in the {which}: "{cell.way}" on "{cell.case}"' for cell in cells]
    parts += [f"  warning: {warning}" for warning in comparison.warnings]
    parts.append(
        f"within noise: medians less than {comparison.floor:.0%} apart, or overlapping inter-quartile ranges"
    )
    return "\n".join(parts)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as aligned columns, two spaces apart.

    >>> print(columns([["a", "bb"], ["ccc", "d"]]))
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
        words.duration(change.before.seconds.median),
        words.duration(change.after.seconds.median),
        change.judgement,
    ]


def _ratios(result: Result) -> str:
    rows = [["case", "way", "time against the first way (quartiles)"]]
    for case in result.cases:
        rows += [
            [case, one.cell.way, words.ratio(result.ratio(one)) if at else "1 (the measure)"]
            for at, one in enumerate(result.of_case(case))
        ]
    return columns(rows)


def _absolute(result: Result) -> str:
    rows = [["case", "way", "median", "quartiles", "least", "rate"]]
    for one in result.figures:
        time = one.seconds
        rates = ", ".join(
            [words.rate(value, unit) for unit, value in one.rates().items()]
            + [f"{name} {words.amount(spread(noted).median, name)}" for name, noted in one.notes.items()]
        )
        quartiles = f"{words.duration(time.low)} to {words.duration(time.high)}"
        rows.append([*one.cell, words.duration(time.median), quartiles, words.duration(time.least), rates])
    return columns(rows)
