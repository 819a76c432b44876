"""What a benchmark is: cases to try, ways to do them, the right answer, claims about the result, and charts.

A workload is data only; it does not know how it is timed. Every name that a claim or a chart uses exists, or
the workload cannot be built: a claim about nothing would always hold. A chart names the cells of a sweep and
holds no figures; the result carries it along, so that the page can be drawn again from the JSON alone.
Workloads are found by name: every module in `bench/workloads/` that offers `workload(size)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

from bench import workloads
from penstock.errors import PenstockError, nearest_first


class Cell(NamedTuple):
    """The name of one figure: a way on a case."""

    case: str
    way: str


Spacing = Literal["log", "linear", "even"]
Form = Literal["lines", "bars", "boxes", "curves"]
PERCENTILES = (5, 25, 50, 75, 95, 99)
"""What a box of latencies is drawn from (WindFlow, 5.4); noted by ways as `p5 (s)`, `p25 (s)` and so on."""


@dataclass(frozen=True, slots=True)
class Point:
    """A figure at a position: `at` on the axis, where the tick is labelled `label`."""

    at: float
    label: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class Line:
    """One series; lines of equal `style` look alike in all charts, by default it follows from the order."""

    name: str
    points: tuple[Point, ...]
    style: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A sweep to be drawn: `along` names what is varied, `up` what is measured.

    up       `rows/s` is a rate of that unit, `s` the time, anything else the name of a note
    spacing  of the places along: a geometric sweep is `log`; `even` where a place has no number
    form     `bars` has a bar per point, for things that have no order; `boxes` has a box per point, of the
             percentiles that its way notes: from p25 to p75, whiskers from p5 to p95, a mark at p99; `curves`
             has a curve per point, of what its way notes as `at 1000: up`, over numbers along
    """

    title: str
    caption: str
    along: str
    lines: tuple[Line, ...]
    up: str = "rows/s"
    spacing: Spacing = "log"
    form: Form = "lines"

    @property
    def points(self) -> Iterator[Point]:
        """Return the points of all lines."""
        return (point for line in self.lines for point in line.points)

    @property
    def places(self) -> dict[str, float]:
        """Return the position of each label from left to right; with even spacing, in order of appearance."""
        positions = {point.label: point.at for point in self.points}
        if self.spacing == "even":
            return {label: float(place) for place, label in enumerate(positions)}
        return dict(sorted(positions.items(), key=lambda one: one[1]))


def curve_note(at: float, measure: str) -> str:
    """Return under which name a way notes what it measured at a place of its own choice, for a curve.

    >>> curve_note(1_000, "average latency (s)")
    'at 1000: average latency (s)'
    """
    return f"at {at:.0f}: {measure}"


class BenchError(PenstockError):
    """A benchmark that cannot be run, read or compared as asked."""


class WayFailed(BenchError):
    """A way that raised while it was timed."""


class WrongAnswer(WayFailed):
    """A way whose answer the oracle does not accept, so that its time means nothing."""


Size = Literal["quick", "full"]


def explain_difference(expected: Any, answer: Any) -> str | None:
    """Return how the answer differs from the expected one by `==`, or None."""
    if expected == answer:
        return None
    return f"expected {_short(expected)}, got {_short(answer)}"


@dataclass(frozen=True, slots=True)
class Case:
    """One input: `make(seed)` gives the data, `units` says how much work one run is ({"rows": 1_000_000}).

    Cases of one group are measured together, round by round; the data of a group is freed before that
    of the next is built, so only cases of one group can be compared.
    """

    name: str
    make: Callable[[int], Any]
    units: Mapping[str, int] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work: `run(data)` is timed, `setup(data)` before it is not.

    With a setup, `run` gets the result of the setup, which is called before every run. A way that answers
    another question than the others has an oracle of its own. `only` names the cases that it is tried on, if
    not all. `notes(answer)` returns further measurements of a run by name; a name that ends in `(s)` is in
    seconds, one in `(bytes)` in bytes.
    """

    name: str
    run: Callable[[Any], Any]
    setup: Callable[[Any], Any] | None = None
    oracle: Callable[[Any], Any] | None = None
    only: tuple[str, ...] = ()
    notes: Callable[[Any], Mapping[str, float]] | None = None

    def is_tried_on(self, case: str) -> bool:
        """Return whether the way is tried on that case."""
        return not self.only or case in self.only


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement to be tested: a bound on a median in seconds, or on its ratio to another median.

    With `speed`, a unit of work such as `rows`, it is about a speed: units per second, or times as fast.
    With `note`, it is about what the ways note under that name, such as bytes, and not about time.
    With `narrow`, it is about two costs that hardly differ: their cases get more rounds, and first quartiles
    are compared instead of medians, because other activity of a machine only ever adds to a time.
    With `both_sides`, it is about how far a median is from 0, below or above: what disturbs one round one way
    and another the other way is no error.

    >>> Claim("ten times the rows cost at most twelve times the time",
    ...       Cell("10,000 rows", "sort"), at_most=12, over=Cell("1,000 rows", "sort")).at_most
    12
    """

    says: str
    cell: Cell
    at_most: float
    over: Cell | None = None
    speed: str = ""
    note: str = ""
    narrow: bool = False
    both_sides: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A benchmark. The first way is the one that the others are measured against.

    `oracle(data)` returns the right answer, once per case; `check(expected, answer)` returns what is wrong
    with an answer, or None. `counts(expected)` returns units of work that only the right answer knows, for
    example its rows. `collector=True` leaves the garbage collector on while the clock runs. `rounds` is the
    default number of timed rounds and `warm_up` that of rounds before them; 0 and None leave that to the
    runner. `remarks` say what is not measured, and why. `forget()` frees what cases share, so that
    `make` builds it again.
    """

    name: str
    about: str
    cases: tuple[Case, ...]
    ways: tuple[Way, ...]
    oracle: Callable[[Any], Any]
    check: Callable[[Any, Any], str | None] = explain_difference
    claims: tuple[Claim, ...] = ()
    collector: bool = False
    charts: tuple[Chart, ...] = ()
    counts: Callable[[Any], Mapping[str, int]] | None = None
    rounds: int = 0
    warm_up: int | None = None
    remarks: tuple[str, ...] = ()
    forget: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        cases = [case.name for case in self.cases]
        _require_distinct(self.name, "case", cases)
        _require_distinct(self.name, "way", [way.name for way in self.ways])
        for way in self.ways:
            for case in way.only:
                _require_known(self.name, f'has way "{way.name}" for', "case", case, cases)
        for claim in self.claims:
            says = f'claims "{claim.says}" about'
            self._require_cell(says, claim.cell)
            if claim.over is not None:
                self._require_cell(says, claim.over)
                self._require_together(claim, claim.over)
        for chart in self.charts:
            for point in chart.points:
                self._require_cell(f'draws "{chart.title}" with', point.cell)

    @property
    def groups(self) -> list[str]:
        """Return the groups of the cases, in order."""
        return list(dict.fromkeys(case.group for case in self.cases))

    def select_groups(self, groups: Collection[str]) -> Workload:
        """Return the workload with the cases, claims and charts of some groups only.

        A name before a comma stands for all groups that begin with it: `grid` for `grid, 10` and `grid, 100`.
        """
        known = dict.fromkeys(name for group in self.groups for name in (group, group.partition(",")[0]))
        for group in groups:
            _require_known(self.name, "was asked for", "group", group, list(known))
        cases = tuple(case for case in self.cases if {case.group, case.group.partition(",")[0]} & set(groups))
        names = {case.name for case in cases}
        tried = (replace(way, only=tuple(n for n in names if way.is_tried_on(n))) for way in self.ways)
        return replace(
            self,
            cases=cases,
            ways=tuple(way for way in tried if way.only),
            claims=tuple(claim for claim in self.claims if claim.cell.case in names),
            charts=tuple(c for c in self.charts if {point.cell.case for point in c.points} <= names),
        )

    def cells_of(self, group: str) -> set[Cell]:
        """Return the cells that one round of a group runs."""
        cases = [case.name for case in self.cases if case.group == group]
        return {Cell(case, way.name) for case in cases for way in self.ways if way.is_tried_on(case)}

    def narrow_cells_of(self, group: str) -> set[Cell]:
        """Return the cells of that group that a narrow claim compares."""
        cases = {case.name for case in self.cases if case.group == group}
        return {
            cell
            for claim in self.claims
            for cell in (claim.cell, claim.over)
            if claim.narrow and cell is not None and cell.case in cases
        }

    def _require_cell(self, says: str, cell: Cell) -> None:
        _require_known(self.name, says, "case", cell.case, [case.name for case in self.cases])
        _require_known(self.name, says, "way", cell.way, [way.name for way in self.ways])
        trying = [way.name for way in self.ways if way.is_tried_on(cell.case)]
        _require_known(self.name, f'{says} case "{cell.case}" and', "way", cell.way, trying)

    def _require_together(self, claim: Claim, over: Cell) -> None:
        groups = {case.name: case.group for case in self.cases}
        if groups[claim.cell.case] != groups[over.case]:
            raise BenchError(
                f'workload "{self.name}" claims "{claim.says}" across groups',
                detail=f'"{claim.cell.case}" is in group "{groups[claim.cell.case]}", '
                f'"{over.case}" in group "{groups[over.case]}": they see different moments of the machine',
                hint="put both cases in one group",
            )


def _require_distinct(workload: str, kind: str, names: list[str]) -> None:
    if not names:
        raise BenchError(f'workload "{workload}" has no {kind}', hint=f"give it at least one {kind}")
    for name in names:
        if names.count(name) > 1:
            raise BenchError(
                f'workload "{workload}" has two {kind}s named "{name}"', hint=f"name each {kind} differently"
            )


def _require_known(workload: str, says: str, kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        # Why here: ranking hundreds of names is slow, so it is done only if one is missing.
        names = nearest_first(name, known)
        raise BenchError(
            f'workload "{workload}" {says} {kind} "{name}", which it does not have',
            detail=f"its {kind}s: {', '.join(names)}",
            hint=f'did you mean "{names[0]}"?' if names else None,
        )


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def list_workloads(package: ModuleType = workloads) -> list[str]:
    """Return the names of the workloads, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load_workload(name: str, size: Size = "full", package: ModuleType = workloads) -> Workload:
    """Return the workload of that name, at that size."""
    names = nearest_first(name, list_workloads(package))
    if name not in names:
        raise BenchError(
            f'there is no workload "{name}"',
            detail=f"workloads: {', '.join(names)}",
            hint=f"try: python -m bench {names[0]} --quick" if names else None,
        )
    module = importlib.import_module(f"{package.__name__}.{name}")
    workload = module.workload(size)
    assert isinstance(workload, Workload), f"{module.__name__}.workload(size) must give a Workload"
    return workload


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a run, which is read outside the clock, and its notes by name (`Way.notes`)."""

    answer: Callable[[], Any]
    notes: Mapping[str, float] = field(default_factory=dict)


class CaseData(Protocol):
    """The data of a case, which knows the right answer."""

    def expected_answer(self) -> Any:
        """Return the expected answer."""


def expected_of(data: CaseData) -> Any:
    """Return the expected answer of a case."""
    return data.expected_answer()


def check_outcome(expected: Any, outcome: Outcome) -> str | None:
    """Return how the answer differs from the expected one, or None."""
    answer = outcome.answer()
    if answer == expected:
        return None
    return f"expected {_short(expected)}, got {_short(answer)}"


def outcome_notes(outcome: Outcome) -> Mapping[str, float]:
    """Return the notes of a run."""
    return outcome.notes
