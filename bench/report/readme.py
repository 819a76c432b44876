"""README's table "How fast": figures from kept results, each beside the command that measures it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.report.markdown import format_table
from bench.result import Figures, Result, spread_of
from bench.text import format_duration, format_number
from bench.workload import BenchError, Cell

BEGIN, END = "<!-- figures: written by python -m bench results -->", "<!-- end of figures -->"
SLIDING = "1 key, sum, 1 s / 10 ms"
OVERLAP = "100 windows per row"
BAND = "band: 2,500 rows/s, 300 s, sampled"
LATENCY = "latency: 2,500 rows/s per stream, 300 s"

SPARK, STREAM_JOIN = "Spark's window()", "Spark's stream-stream join"
MANY = ", batches of 1,000"
STEPS, CHAINED, ALONE = "10,000 rows/s through five steps", "latency, chained", "a row at a time"
DUE, MEAN = "in process, the rows that are due", "average latency (s)"


class Row(NamedTuple):
    """A row of the table: what was measured, the file of its result, and the sentence of its figures."""

    measured: str
    file: str
    say: Callable[[FiguresInWords], str]


class FiguresInWords:
    """The figures of a result, in words."""

    def __init__(self, result: Result) -> None:
        self._figures = {one.cell: one for one in result.figures}

    def rate(self, case: str, way: str, unit: str = "rows") -> str:
        """Return units of work per second at the median: `448 million rows`."""
        spread = self._find(case, way).of(f"{unit}/s")
        assert spread is not None, f'"{case}" counts its {unit}'
        return f"{_count(spread.median)} {unit}"

    def times(self, case: str, way: str, over: str) -> str:
        """Return how many times as long one way takes as another."""
        return format_number(self._find(case, way).ns.median / self._find(case, over).ns.median)

    def ratios(self, start: str, way: str, over: str) -> str:
        """Return the least and the greatest ratio over all cases whose name starts so."""
        cases = [cell.case for cell in self._figures if cell.case.startswith(start) and cell.way == way]
        ratios = [self._find(case, way).ns.median / self._find(case, over).ns.median for case in cases]
        return f"{format_number(min(ratios))} to {format_number(max(ratios))}"

    def span(self, case: str, way: str, name: str) -> str:
        """Return a duration that a way noted."""
        return format_duration(spread_of(self._find(case, way).notes[name]).median)

    def note(self, case: str, way: str, name: str) -> str:
        """Return a number that a way noted."""
        return _count(spread_of(self._find(case, way).notes[name]).median)

    def _find(self, case: str, way: str) -> Figures:
        if Cell(case, way) not in self._figures:
            raise BenchError(
                f'README\'s table has a figure of "{way}" on "{case}", which no kept result has',
                hint="measure it again with --save, or mend ROWS in bench/report/readme.py",
            )
        return self._figures[Cell(case, way)]


ROWS = (
    Row(
        "windows of 1 s every 10 ms, one key, one core",
        "windows",
        lambda of: (
            f"{of.rate(SLIDING, 'penstock')}/s, {of.times(SLIDING, 'penstock', 'reading')} times as long as "
            "just reading the columns"
        ),
    ),
    Row(
        "the same windows in pandas, in Polars, as a bucket per window",
        "windows",
        lambda of: (
            f"{of.times(SLIDING, 'pandas', 'penstock')}, {of.times(SLIDING, 'Polars', 'penstock')} and "
            f"{of.times(OVERLAP, 'bucket per window', 'penstock')} times as long"
        ),
    ),
    Row(
        "a fold of three numbers that a user wrote",
        "windows",
        lambda of: f"{of.rate('fold of three numbers', 'penstock')}/s",
    ),
    Row(
        "on Spark: windows of 10 s every 100 ms, 100 keys, files to files",
        "spark-windows",
        lambda of: (
            f"{of.times('10 s / 100 ms, 100 keys', SPARK, 'penstock')} times as fast as Spark's `window()`"
        ),
    ),
    Row(
        "in process: YSB with integer ids, and with UUIDs, two cores",
        "runtime",
        lambda of: f"{of.rate('YSB, integer ids', 'penstock')}/s and {of.rate('YSB, UUIDs', 'penstock')}/s",
    ),
    Row(
        "in process: latency of single rows through five steps, 10,000 rows/s",
        "runtime",
        lambda of: (
            f"half within {of.span(STEPS, CHAINED, 'p50 (s)')}, "
            f"99 of 100 within {of.span(STEPS, CHAINED, 'p99 (s)')}"
        ),
    ),
    Row(
        "in process: a row at a time through three plain Python functions",
        "runtime",
        lambda of: (
            f"{of.times(ALONE, 'Bytewax, batches of 1', 'penstock, batches of 1')} times as fast as Bytewax; "
            f"with batches of 1,000, {of.times(ALONE, 'Bytewax' + MANY, 'penstock' + MANY)} times"
        ),
    ),
    Row(
        "in process: C-Stream's four topologies of busy operators",
        "cstream",
        lambda of: (
            f"two threads take {of.ratios('', 'random, 2 threads', 'random, 1 thread')} of the time of one"
        ),
    ),
    Row(
        "a band join of two streams on two columns, 750,000 rows stored of each, one core",
        "join-band",
        lambda of: (
            f"the index is {of.times(BAND, 'penstock, scans only', 'penstock')} times as fast as scans, "
            f"and {of.times(BAND, 'Polars join_where', 'penstock')} times as fast as Polars' `join_where`"
        ),
    ),
    Row(
        "the same join in process, 2,500 rows/s per stream as they come, two cores",
        "join-latency",
        lambda of: (
            f"average latency {of.span(LATENCY, DUE, MEAN)} as lists of due rows, "
            f"{of.span(LATENCY, 'in process, single rows', MEAN)} as single rows"
        ),
    ),
    Row(
        "on Spark: a band join, files to files",
        "join-spark",
        lambda of: (
            f"{of.times('spark: band join', STREAM_JOIN, 'penstock on Spark')} times as fast as Spark's join "
            "on a constant key with a filter"
        ),
    ),
    Row(
        "on Spark: an equality join within 5 s",
        "join-spark",
        lambda of: (
            f"{of.times('spark: equality join within a time', STREAM_JOIN, 'penstock on Spark')} times as "
            "fast as Spark's own"
        ),
    ),
)


def fill_table(readme: str, summaries: Mapping[str, Result], rows: tuple[Row, ...] = ROWS) -> str:
    """Return README with its table written again; a row whose result is not kept is left out."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(
            "README has no place for the table of figures",
            hint=f'put "{BEGIN}" and "{END}" on lines of their own',
        )
    filled = [
        [row.measured, row.say(FiguresInWords(summaries[row.file])), f"`{summaries[row.file].command}`"]
        for row in rows
        if row.file in summaries
    ]
    table = format_table(["measured", "figure", "command"], filled)
    return f"{before}{begin}\n{table}{end}{after}"


def _count(value: float) -> str:
    for word, factor in ((" billion", 1e9), (" million", 1e6)):
        if value >= factor:
            return f"{format_number(value / factor)}{word}"
    return format_number(value)
