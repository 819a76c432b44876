"""Window steps: rows into windows per key, windows into results; and the kinds of window.

The step makes a `Member` of every row, asks each kind whether it accepts it, and lets the kinds say which
windows are emitted. With several kinds of window on one stream, a row is late only when no kind accepts it
and one of them says late. All results of a round are emitted together, key by key, and per key by
(window_end, window_start). Imports no stage and no kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from enum import Enum

import pyarrow as pa

from penstock.engines.reference.aggregates import Aggregates, WindowFunction
from penstock.engines.reference.node import Frontier, Node, Outputs, RoundInput, Site, output_frontier
from penstock.engines.rows import TimedRow, key_columns, key_of, row_sort_key, sort_key
from penstock.errors import RowFailure
from penstock.expr.values import to_python
from penstock.frozen import Frozen, dataclass
from penstock.operators.op import LATE, OUT
from penstock.operators.windows import END, FINAL, INDEX, START, WINDOW, WindowContext, Windows
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow, Window, is_late_for


class Outcome(Enum):
    """What becomes of a row in one kind of window."""

    ACCEPTED = "it is in a window that is still open"
    LATE = "it had windows, and all have closed"
    GAP = "it lies between windows"


@dataclass(slots=True, eq=False)
class Member:
    """A row in a window step.

    row       the row
    parts     what each aggregate takes from it, by result column
    passed    whether it is in some emitted window; count windows know only when they are full
    held      whether it is in some count window that is not full
    """

    row: TimedRow
    parts: Mapping[str, object]
    passed: bool = False
    held: bool = False


@dataclass(slots=True, eq=False)
class WindowRows:
    """A window with its rows: open, or about to be emitted (finally or early).

    start, end  in microseconds; of a count window they are the times of its first and last row
    index       the number of a count window; None for other kinds
    members     its rows, in order once it is emitted
    changed     whether rows came since its last early result
    """

    start: int = 0
    end: int = 0
    index: int | None = None
    members: list[Member] = field(default_factory=list)
    changed: bool = False

    @property
    def time(self) -> int:
        """Return the time of its result."""
        return self.end - 1 if self.index is None else self.end

    def add(self, *members: Member) -> None:
        """Add rows."""
        self.members += members
        self.changed = True

    def in_order(self) -> WindowRows:
        """Return the window with its rows as aggregates and functions see them."""
        self.members = sort_members(self.members)
        return self


def sort_members(members: list[Member]) -> list[Member]:
    """Return rows as aggregates and functions see them: by (time, order, columns)."""
    return sorted(members, key=lambda member: row_sort_key(member.row))


class WindowKind(ABC):
    """The windows of one kind and one key; those that are open by start or by number."""

    def __init__(self, lateness: int) -> None:
        self._lateness = lateness
        self._open: dict[int, WindowRows] = {}

    @abstractmethod
    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Add the round's rows that are not late; return the outcome and the windows missed, per row."""

    def close(self, after: float) -> list[WindowRows]:
        """Return the windows that close at this watermark: those with W >= end + lateness."""
        gone = [at for at, window in self._open.items() if is_late_for(after, window.end, self._lateness)]
        return [self._open.pop(at).in_order() for at in gone]

    def early(self) -> list[WindowRows]:
        """Return the open windows that changed since their last early result."""
        changed = [window for window in self._open.values() if window.changed]
        for window in changed:
            window.changed = False
        return [window.in_order() for window in changed]

    def close_at_end(self) -> list[WindowRows]:
        """Return the windows that only the end of the stream emits: none where the watermark closes all."""
        return []


class TimeWindows(WindowKind):
    """Time windows of one key, tumbling, sliding and hopping: the open ones by start.

        size 10, every 5                0    5    10   15   20
        a row at 7 is in two windows    [--------7--)
                                             [---7-----)

    A row counts in each of its windows that is still open (W < end + lateness). It is late when it had
    windows and all have closed; every window that it missed is counted. A window is emitted once, when
    W >= end + lateness; its result has the time end - 1. Windows without rows do not exist.
    """

    def __init__(self, window: TimeWindow, lateness: int) -> None:
        super().__init__(lateness)
        self._window = window

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Return each row by itself: time windows do not depend on other rows."""
        return [self._take_one(member, before) for member in members]

    def _take_one(self, member: Member, before: float) -> tuple[Outcome, int]:
        size = self._window.size
        starts = self._window.starts(member.row.at())
        still_open = [start for start in starts if not is_late_for(before, start + size, self._lateness)]
        for start in still_open:
            self._open.setdefault(start, WindowRows(start, start + size)).add(member)
        misses = len(starts) - len(still_open)
        if still_open:
            return Outcome.ACCEPTED, misses
        return (Outcome.LATE if starts else Outcome.GAP), misses


class Sessions(WindowKind):
    """Session windows of one key: [first time, last time + gap), merged when they touch.

        gap 5     a row at 3    [3    8)
                  a row at 8         [8    13)      touches: one session [3, 13)
                  a row at 19                          [19   24)

    A row is on time when W < time + gap + lateness; it opens a session of its own or joins those it touches,
    and may bridge two. A row behind that is late unless an open session accepts it. So that the answer does
    not depend on the order inside a batch, the on-time rows of a round are added first, and then the others
    are tried again and again until none of them touches a session.

    Invariant: no two open sessions touch.
    """

    def __init__(self, window: SessionWindow, lateness: int) -> None:
        super().__init__(lateness)
        self._gap = window.gap

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Add on-time rows first; then those that an open session accepts, until none is left."""
        behind = [m for m in members if is_late_for(before, m.row.at() + self._gap, self._lateness)]
        for member in members:
            if member not in behind:
                self._add(member)
        while accepted := next((member for member in behind if self._sessions_near(member)), None):
            self._add(accepted)
            behind.remove(accepted)
        return [(Outcome.LATE, 1) if member in behind else (Outcome.ACCEPTED, 0) for member in members]

    def _sessions_near(self, member: Member) -> list[WindowRows]:
        """Return the sessions that the row's own overlaps, or that end or begin exactly where it does."""
        start, end = member.row.at(), member.row.at() + self._gap
        return [session for session in self._open.values() if start <= session.end and session.start <= end]

    def _add(self, member: Member) -> None:
        """Merge the row and all sessions that it touches into one session."""
        merged = WindowRows(member.row.at(), member.row.at() + self._gap)
        merged.add(member)
        for session in self._sessions_near(member):
            merged.start, merged.end = min(merged.start, session.start), max(merged.end, session.end)
            merged.add(*self._open.pop(session.start).members)
        self._open[merged.start] = merged


class CountWindows(WindowKind):
    """Count windows of one key: window i holds the rows i * every to i * every + size - 1, in order.

        size 3, every 2     rows    0  1  2  3  4  5
                        window 0   [-----)
                        window 1         [-----)

    Rows are ordered once no earlier one can come: when time + lateness < W. A row that arrives after that is
    late. A window is emitted when it is full; its start and end are the times of its first and last row, and
    its result has the time of its last row. With every > size some rows are in no window.
    """

    def __init__(self, window: CountWindow, lateness: int, *, partial: bool) -> None:
        super().__init__(lateness)
        self._size, self._every, self._partial = window.size, window.every, partial
        self._waiting: list[Member] = []
        self._placed = 0

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Let rows wait to be ordered; a row is late if rows of its time have been ordered already."""
        late = [before > member.row.at() + self._lateness for member in members]
        self._waiting += [member for member, is_late in zip(members, late, strict=True) if not is_late]
        return [(Outcome.LATE, 1) if is_late else (Outcome.ACCEPTED, 0) for is_late in late]

    def close(self, after: float) -> list[WindowRows]:
        """Order what the watermark has passed; return every window that becomes full."""
        ready = [member for member in self._waiting if member.row.at() + self._lateness < after]
        self._waiting = [member for member in self._waiting if member.row.at() + self._lateness >= after]
        return [content for member in sort_members(ready) for content in self._place(member)]

    def close_at_end(self) -> list[WindowRows]:
        """Return, at the end of the stream, the windows that are not full, if they were asked for."""
        left, self._open = self._open, {}
        return self._emit(left.values()) if self._partial else []

    def _place(self, member: Member) -> list[WindowRows]:
        """Put the next row into its windows; return those that it fills."""
        number, self._placed = self._placed, self._placed + 1
        first = max(0, (number - self._size) // self._every + 1)
        last = number // self._every
        for index in range(first, last + 1):
            window = self._open.setdefault(index, WindowRows(member.row.at(), index=index))
            window.add(member)
            window.end, member.held = member.row.at(), True
        full = [index for index, window in self._open.items() if len(window.members) == self._size]
        return self._emit([self._open.pop(index) for index in full])

    def _emit(self, windows: Iterable[WindowRows]) -> list[WindowRows]:
        emitted = list(windows)
        for window in emitted:
            for member in window.members:
                member.passed = True
        return emitted


class Group(Frozen):
    """The windows of one key: a kind per window of the step, in its order."""

    key: dict[str, object]
    kinds: tuple[WindowKind, ...]


class WindowNode(Node):
    """All windowed operators: keyed, parallel, paned and map-reduce windows have one meaning."""

    def __init__(self, site: Site, op: Windows) -> None:
        super().__init__(site)
        self._op, self._up = op, site.step.up
        self._resolved = op.resolve(self._up)
        self._aggregation = (
            WindowFunction(op.function, self._up)
            if op.function
            else Aggregates(op.aggregates or {}, self._up)
        )
        self._groups: dict[tuple[Hashable, ...], Group] = {}
        self._undecided: list[Member] = []
        self._early_at = site.clock.now()

    def forward(self, frontier: Frontier) -> Frontier:
        """Return a frontier that trails the input by the lateness."""
        return output_frontier(frontier, self._resolved.lateness)

    def round(self, inputs: RoundInput) -> Outputs:
        """Add rows by the watermark before the round; close windows by the one after it."""
        late = self._add_rows(inputs.only, inputs.before)
        groups = sorted(self._groups.values(), key=lambda group: list(map(sort_key, group.key.values())))
        results = []
        for group in groups:
            closed = [
                kind.close(inputs.after) + (kind.close_at_end() if inputs.over else [])
                for kind in group.kinds
            ]
            results += self._results(group, closed, final=True)
        self._count_decided(ended=bool(inputs.over))
        every, now = self._resolved.early, self.site.clock.now()
        if every is not None and now - self._early_at >= every:
            self._early_at = now
            for group in groups:
                results += self._results(group, [kind.early() for kind in group.kinds], final=False)
        return {OUT: results, LATE: late}

    def _add_rows(self, rows: list[TimedRow], before: float) -> list[TimedRow]:
        """Add rows to the windows of their keys; return the late ones."""
        by_key: dict[tuple[Hashable, ...], list[Member]] = {}
        for row in rows:
            parts, failed = self._aggregation.lift(row.values)
            if failed is not None:
                self.failed_rows.add(row, self._up.schema, *failed)
            else:
                by_key.setdefault(key_of(row.values, self._up.key), []).append(Member(row, parts))
        late = {id(row) for key, members in by_key.items() for row in self._add_to_key(key, members, before)}
        return [row for row in rows if id(row) in late]

    def _add_to_key(self, key: tuple[Hashable, ...], members: list[Member], before: float) -> list[TimedRow]:
        if key not in self._groups:
            kinds = tuple(self._kind(window) for _, window in self._resolved.windows)
            self._groups[key] = Group(key_columns(members[0].row.values, self._up.key), kinds)
        outcomes_by_kind = [kind.add(members, before) for kind in self._groups[key].kinds]
        late = []
        for member, outcomes in zip(members, zip(*outcomes_by_kind, strict=True), strict=True):
            takers = []
            for (label, window), (outcome, misses) in zip(self._resolved.windows, outcomes, strict=True):
                if outcome is Outcome.ACCEPTED:
                    takers.append(window)
                if misses:
                    # Why a new dict: another thread may be reading the accounts.
                    counts, named = self.accounts.late_by_window, label or str(window)
                    self.accounts.late_by_window = {**counts, named: counts.get(named, 0) + misses}
            if takers:  # counted once its count windows are known
                member.passed = any(not isinstance(window, CountWindow) for window in takers)
                self._undecided.append(member)
            elif any(outcome is Outcome.LATE for outcome, _ in outcomes):
                self.accounts.late += 1
                late.append(member.row)
            else:
                self.accounts.no_window += 1
        return late

    def _count_decided(self, *, ended: bool) -> None:
        """Count the rows whose outcome is known: all that passed, and at the end all others too."""
        for member in self._undecided:
            if member.passed:
                self.accounts.passed += 1
            elif ended and member.held:
                self.accounts.unfinished += 1
            elif ended:
                self.accounts.no_window += 1
        self._undecided = [] if ended else [member for member in self._undecided if not member.passed]

    def _results(self, group: Group, windows: list[list[WindowRows]], *, final: bool) -> list[TimedRow]:
        """Return the results of windows of one key, by (window_end, window_start); `windows` is by kind."""
        numbered = [(number, content) for number, contents in enumerate(windows) for content in contents]
        numbered.sort(key=lambda item: (item[1].end, item[1].start, item[0], item[1].index or 0))
        return [
            row for number, content in numbered for row in self._rows(group, number, content, final=final)
        ]

    def _rows(self, group: Group, number: int, content: WindowRows, *, final: bool) -> list[TimedRow]:
        """Return the result rows of one window, with the key and the bounds."""
        label, window = self._resolved.windows[number]
        time = self._up.require_time("a window")
        columns: dict[str, object] = dict(group.key)
        columns |= {WINDOW: label} if self._resolved.has_labels else {}
        columns |= {START: time.value(content.start), END: time.value(content.end)}
        columns |= {INDEX: content.index} if self._resolved.has_counts else {}
        last = {FINAL: final} if self._resolved.early is not None else {}
        start, end = (_to_python(columns[name], time.type) for name in (START, END))
        key = tuple(_to_python(value, self._up.schema.field(name).type) for name, value in group.key.items())
        # The window as the user sees it, and as an error calls it: its kind, its bounds, its key.
        this = WindowContext(start, end, content.index, label, key)
        named = ", ".join(f"{name}={value!r}" for name, value in zip(self._up.key, key, strict=True))
        place = f"window {window} from {start} to {end}" + (f" of key {named}" if named else "")
        results = self._aggregation.results(content, this, place)
        orders = [()] if len(results) == 1 else [(index,) for index in range(len(results))]
        return [
            TimedRow({**columns, **result, **last}, content.time, order)
            for result, order in zip(results, orders, strict=True)
        ]

    def _kind(self, window: Window) -> WindowKind:
        if isinstance(window, CountWindow):
            return CountWindows(window, self._resolved.lateness, partial=self._op.partial)
        if isinstance(window, SessionWindow):
            return Sessions(window, self._resolved.lateness)
        return TimeWindows(window, self._resolved.lateness)


def _to_python(value: object, type_: pa.DataType) -> object:
    """Return a value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
