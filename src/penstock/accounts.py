"""Accounts: what became of every row that entered a step.

Invariant, for every step: rows in = passed + late + filtered + in no window + unfinished + unmatched +
unrouted + errors. `passed` rows contributed to the step's output (a map's result, some window, some state).
A property test checks the sum on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields

from penstock.frozen import dataclass


@dataclass(slots=True)
class Accounts:
    """Row counts of one step since the run began.

    rows_in         rows that entered (for a source: rows read, including malformed ones)
    rows_out        rows emitted on the main port or ports
    passed          rows that contributed to the step's output
    late            rows that arrived after all their windows had closed
    late_by_window  window -> misses: one for every closed window that a row belonged to
    filtered        rows for which a filter was not true
    no_window       rows in the gaps of hopping windows
    unfinished      rows that were only in count windows still incomplete at the end
    unmatched       rows without a partner in an inner table join
    unrouted        rows that a split sent nowhere, or to a branch without a reader
    errors          rows that failed and were skipped or dead-lettered
    """

    rows_in: int = 0
    rows_out: int = 0
    passed: int = 0
    late: int = 0
    late_by_window: dict[str, int] = field(default_factory=dict)
    filtered: int = 0
    no_window: int = 0
    unfinished: int = 0
    unmatched: int = 0
    unrouted: int = 0
    errors: int = 0

    @property
    def is_balanced(self) -> bool:
        """Return whether every row that entered is accounted for."""
        lost = self.late + self.filtered + self.no_window + self.unfinished + self.unmatched + self.unrouted
        return self.rows_in == self.passed + lost + self.errors

    def count_passed(self, n_in: int, n_out: int) -> None:
        """Count rows that came in, and those of them that passed and left."""
        self.rows_in += n_in
        self.passed += n_out
        self.rows_out += n_out

    def add(self, other: Accounts) -> None:
        """Add the counts of another period or replica of the same step."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        merged = dict(self.late_by_window)  # replaced: another thread may be reading the old one
        for window, missed in other.late_by_window.items():
            merged[window] = merged.get(window, 0) + missed
        self.late_by_window = merged

    def take(self) -> Accounts:
        """Return the counts so far and start again from zero, in the same object."""
        counts = Accounts(**asdict(self))
        for name, zero in asdict(Accounts()).items():
            setattr(self, name, zero)
        return counts

    def to_dict(self) -> Mapping[str, object]:
        """Return the counts as plain data for JSON."""
        return asdict(self)


COUNTS = tuple(one.name for one in fields(Accounts) if one.name != "late_by_window")
"""What is a number in accounts."""


@dataclass(slots=True)
class JoinAccounts(Accounts):
    """Row counts of a join of two streams, and how its cells are doing.

    layout        its cells now, such as "2 x 3 cells"
    rates         rows of the left and of the right: a second in process, a micro-batch on Spark
    stored        rows that are kept of the left and of the right
    predicted_ms  by the model, for these cells: in process how long a row is on its way to its pairs, on
                  Spark how long the busiest cell is at work on a micro-batch
    measured_ms   the same, as it was
    """

    layout: str = ""
    rates: tuple[float, float] = (0.0, 0.0)
    stored: tuple[int, int] = (0, 0)
    predicted_ms: float = 0.0
    measured_ms: float = 0.0
