"""Window steps: rows into windows per key, windows into results.

With several kinds of window on one stream, a row is late only when no kind accepts it and one of them says
late. All results of a round are emitted together, key by key, and per key by (window_end, window_start).
Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Hashable

import pyarrow as pa

from penstock.engines.reference import window_kinds
from penstock.engines.reference.aggregates import Aggregates, WindowFunction
from penstock.engines.reference.node import Frontier, Node, Outputs, RoundInput, Site, output_frontier
from penstock.engines.reference.window_kinds import Member, Outcome, WindowKind, WindowRows
from penstock.engines.rows import TimedRow, key_columns, key_of, sort_key
from penstock.errors import RowFailure
from penstock.expr.values import to_python
from penstock.frozen import dataclass
from penstock.operators.op import LATE, OUT
from penstock.operators.windows import END, FINAL, INDEX, START, WINDOW, WindowContext, Windows
from penstock.timing.windows import CountWindow, SessionWindow, Window


@dataclass(frozen=True, slots=True)
class Group:
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
        group = self._groups[key]
        outcomes: list[list[Outcome]] = [[] for _ in members]
        for kind, (label, window) in zip(group.kinds, self._resolved.windows, strict=True):
            for outcomes_of_row, (outcome, misses) in zip(outcomes, kind.add(members, before), strict=True):
                outcomes_of_row.append(outcome)
                if misses:
                    # Why a new dict: another thread may be reading the accounts.
                    counts, named = self.accounts.late_by_window, label or str(window)
                    self.accounts.late_by_window = {**counts, named: counts.get(named, 0) + misses}
        return [
            member.row
            for member, outcomes_of_row in zip(members, outcomes, strict=True)
            if self._count(member, outcomes_of_row)
        ]

    def _count(self, member: Member, outcomes_of_row: list[Outcome]) -> bool:
        """Return whether the row is late; else count it now, or once its count windows are known."""
        kinds = [window for _, window in self._resolved.windows]
        takers = [
            kind for kind, outcome in zip(kinds, outcomes_of_row, strict=True) if outcome is Outcome.ACCEPTED
        ]
        if takers:
            member.passed = any(not isinstance(kind, CountWindow) for kind in takers)
            self._undecided.append(member)
        elif Outcome.LATE in outcomes_of_row:
            self.accounts.late += 1
            return True
        else:
            self.accounts.no_window += 1
        return False

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
            return window_kinds.CountWindows(window, self._resolved.lateness, partial=self._op.partial)
        if isinstance(window, SessionWindow):
            return window_kinds.Sessions(window, self._resolved.lateness)
        return window_kinds.TimeWindows(window, self._resolved.lateness)


def _to_python(value: object, type_: pa.DataType) -> object:
    """Return a value as the user sees it, or as it is stored where a datetime cannot hold it."""
    try:
        return to_python(value, type_)
    except RowFailure:
        return value
