"""Window steps: rows into windows per key, windows into results.

Several kinds of window on one stream are judged side by side: a row is late only when no kind takes it
in and one of them says late. All results of a round leave together, key by key, and per key by
(window_end, window_start).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pyarrow as pa

from penstock.engines.reference.aggregates import Aggregates, WindowFunction
from penstock.engines.reference.node import Frontier, Node, Outputs, RoundInput, Site, output_frontier
from penstock.engines.reference.window_kinds import (
    CountWindows,
    Member,
    Outcome,
    Sessions,
    TimeWindows,
    WindowKind,
    WindowRows,
)
from penstock.engines.rows import TimedRow, key_columns, key_of, sort_key
from penstock.errors import RowFailure
from penstock.expr.types import to_python
from penstock.frozen import dataclass
from penstock.operators.op import LATE, OUT
from penstock.operators.windows import END, FINAL, INDEX, START, WINDOW, WindowContext, Windows
from penstock.timing.windows import CountWindow, SessionWindow, Window


@dataclass(frozen=True, slots=True)
class Group:
    """The windows of one key: a kind per window of the step, in its order."""

    key: dict[str, object]
    kinds: tuple[WindowKind, ...]

    def place(self) -> list[object]:
        """Return what to sort keys by."""
        return [sort_key(value) for value in self.key.values()]


class WindowNode(Node):
    """All windowed operators: keyed, parallel, paned and map-reduce windows have one meaning."""

    def __init__(self, site: Site, op: Windows) -> None:
        super().__init__(site)
        self._op, self._up = op, site.step.up
        self._resolved = op.resolve(self._up)
        self._compute = (
            WindowFunction(op.function, self._up)
            if op.function
            else Aggregates(op.aggregates or {}, self._up)
        )
        self._groups: dict[tuple[Hashable, ...], Group] = {}
        self._undecided: list[Member] = []
        self._shown_at = site.clock.now()

    def forward(self, frontier: Frontier) -> Frontier:
        """Results come up to the lateness behind the input."""
        return output_frontier(frontier, self._resolved.lateness)

    def round(self, given_round: RoundInput) -> Outputs:
        """Judge the rows by the watermark before the round; let windows leave by the one after it."""
        late = self._take(given_round.only, given_round.before)
        results = []
        for group in sorted(self._groups.values(), key=Group.place):
            results += self._leaving(group, given_round)
        self._decide(ended=bool(given_round.over))
        return {OUT: results + self._early(), LATE: late}

    def _take(self, rows: list[TimedRow], before: float) -> list[TimedRow]:
        """Rows into the windows of their keys; gives the late ones."""
        by_key: dict[tuple[Hashable, ...], list[Member]] = {}
        for row in rows:
            parts, failed = self._compute.lift(row.values)
            if failed is not None:
                self.failed_rows.row(row, self._up.schema, *failed)
            else:
                by_key.setdefault(key_of(row.values, self._up.key), []).append(Member(row, parts))
        late = {id(row) for key, members in by_key.items() for row in self._judge(key, members, before)}
        return [row for row in rows if id(row) in late]

    def _judge(self, key: tuple[Hashable, ...], members: list[Member], before: float) -> list[TimedRow]:
        group = self._group(key, members[0])
        outcomes: list[list[Outcome]] = [[] for _ in members]
        for kind, (label, window) in zip(group.kinds, self._resolved.windows, strict=True):
            for said, (outcome, misses) in zip(outcomes, kind.take(members, before), strict=True):
                said.append(outcome)
                self._missed(label or str(window), misses)
        return [
            member.row for member, said in zip(members, outcomes, strict=True) if self._count(member, said)
        ]

    def _count(self, member: Member, said: list[Outcome]) -> bool:
        """Whether the row is late; otherwise it is counted now, or when its count windows are known."""
        kinds = [window for _, window in self._resolved.windows]
        takers = [kind for kind, outcome in zip(kinds, said, strict=True) if outcome is Outcome.TAKEN]
        if takers:
            member.passed = any(not isinstance(kind, CountWindow) for kind in takers)
            self._undecided.append(member)
        elif Outcome.LATE in said:
            self.accounts.late += 1
            return True
        else:
            self.accounts.no_window += 1
        return False

    def _missed(self, label: str, misses: int) -> None:
        if misses:
            # A new dict, never a changed one: another thread may be reading the accounts.
            counts = self.accounts.late_by_window
            self.accounts.late_by_window = {**counts, label: counts.get(label, 0) + misses}

    def _decide(self, *, ended: bool) -> None:
        """Count the rows whose fate is known: all that passed, and at the end all others too."""
        for member in self._undecided:
            if member.passed:
                self.accounts.passed += 1
            elif ended and member.held:
                self.accounts.unfinished += 1
            elif ended:
                self.accounts.no_window += 1
        self._undecided = [] if ended else [member for member in self._undecided if not member.passed]

    def _leaving(self, group: Group, given_round: RoundInput) -> list[TimedRow]:
        """Return the results of one key, by (window_end, window_start)."""
        leaving: list[tuple[int, WindowRows]] = []
        for number, kind in enumerate(group.kinds):
            contents = kind.leave(given_round.after) + (kind.rest() if given_round.over else [])
            leaving += [(number, content) for content in contents]
        leaving.sort(key=lambda each: (each[1].end, each[1].start, each[0], each[1].index or 0))
        return [row for number, content in leaving for row in self._rows(group, number, content, final=True)]

    def _early(self) -> list[TimedRow]:
        """Unfinished results, if the clock says that it is time for them again."""
        every, now = self._resolved.early, self.site.clock.now()
        if every is None or now - self._shown_at < every:
            return []
        self._shown_at = now
        shown = []
        for group in sorted(self._groups.values(), key=Group.place):
            for number, kind in enumerate(group.kinds):
                for content in sorted(kind.early(), key=lambda content: (content.end, content.start)):
                    shown += self._rows(group, number, content, final=False)
        return shown

    def _rows(self, group: Group, number: int, content: WindowRows, *, final: bool) -> list[TimedRow]:
        """Return the result rows of one window, with the key and the bounds."""
        label, window = self._resolved.windows[number]
        time = self._up.require_time("a window")
        columns: dict[str, object] = dict(group.key)
        columns |= {WINDOW: label} if self._resolved.has_labels else {}
        columns |= {START: time.value(content.start), END: time.value(content.end)}
        columns |= {INDEX: content.index} if self._resolved.has_counts else {}
        last = {FINAL: final} if self._resolved.early is not None else {}
        this = self._this(group, label, columns)
        results = self._compute.results(content, this, _place(this, window, self._up.key))
        orders = [()] if len(results) == 1 else [(index,) for index in range(len(results))]
        return [
            TimedRow({**columns, **result, **last}, content.time, order)
            for result, order in zip(results, orders, strict=True)
        ]

    def _this(self, group: Group, label: str | None, columns: Mapping[str, object]) -> WindowContext:
        """Return the window as the user sees it."""
        kind = self._up.require_time("a window").type
        start, end = (_shown(columns[name], kind) for name in (START, END))
        key = tuple(_shown(value, self._up.schema.field(name).type) for name, value in group.key.items())
        index = columns.get(INDEX)
        return WindowContext(start, end, index if isinstance(index, int) else None, label, key)

    def _group(self, key: tuple[Hashable, ...], member: Member) -> Group:
        if key not in self._groups:
            kinds = tuple(self._kind(window) for _, window in self._resolved.windows)
            self._groups[key] = Group(key_columns(member.row.values, self._up.key), kinds)
        return self._groups[key]

    def _kind(self, window: Window) -> WindowKind:
        if isinstance(window, CountWindow):
            return CountWindows(window, self._resolved.lateness, partial=self._op.partial)
        if isinstance(window, SessionWindow):
            return Sessions(window, self._resolved.lateness)
        return TimeWindows(window, self._resolved.lateness)


def _place(this: WindowContext, window: Window, key: tuple[str, ...]) -> str:
    """Return a window for an error message: which kind, its bounds, its key."""
    named = ", ".join(f"{name}={value!r}" for name, value in zip(key, this.key, strict=True))
    return f"window {window} from {this.start} to {this.end}" + (f" of key {named}" if named else "")


def _shown(value: object, type_: pa.DataType) -> object:
    """Return a value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
