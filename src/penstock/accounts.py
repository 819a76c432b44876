"""Accounts: what became of every row that came into a step.

For each step: rows in = passed + late + filtered + in no window + unfinished + unmatched + unrouted +
errors. `passed` rows took part in what the step gives out (a map's output, some window, some state).
Nothing else may happen to a row, and a property test adds it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field

from penstock.frozen import dataclass


@dataclass(slots=True)
class Accounts:
    """The rows of one step, over a run so far.

    rows_in         rows that came in (a source: rows read, bad ones too)
    rows_out        rows that left on the main port or ports
    passed          rows that took part in the step's work
    late            rows that came after all their windows had left
    late_by_window  misses: one for every window that had left when a row of it came
    filtered        rows for which a filter was not true
    no_window       rows in the gaps of hopping windows
    unfinished      rows only in count windows that were not full at the end
    unmatched       rows without a partner in an inner table join
    unrouted        rows that a split sent nowhere, or to a branch that nobody reads
    errors          rows that failed, and were skipped or dead-lettered
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
    def balanced(self) -> bool:
        """Whether every row in is accounted for."""
        return self.rows_in == (
            self.passed
            + self.late
            + self.filtered
            + self.no_window
            + self.unfinished
            + self.unmatched
            + self.unrouted
            + self.errors
        )

    def to_dict(self) -> Mapping[str, object]:
        """Plain data for JSON."""
        return asdict(self)
