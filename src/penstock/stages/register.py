"""A register: one running number, or a few, kept per slice and combined into windows.

Aggregates are put together from registers (`lowering.py`) and share them: sum, mean and count of one column
need two registers between them, not four. A register says which values it is of and how rows get in; how
two partial results become one is its rule's affair (`kernels/rules.py`).
"""

from __future__ import annotations

from penstock.frozen import dataclass
from penstock.kernels import rules
from penstock.kernels.rules import Rule
from penstock.operators.choices.kept import Kind

__all__ = ["Kind", "Register"]


_RULES = {
    Kind.ROWS: rules.COUNT,
    Kind.COUNT: rules.COUNT,
    Kind.INT_SUM: rules.WIDE_SUM,
    Kind.FLOAT_SUM: rules.FLOAT_SUM,
    Kind.MOST: rules.GREATEST,
    Kind.LEAST: rules.GREATEST,
    Kind.MOST_OF: rules.COUNTED,
    Kind.LEAST_OF: rules.COUNTED,
    Kind.LAST: rules.LATEST,
    Kind.FIRST: rules.LATEST,
    Kind.MOMENTS: rules.MOMENTS,
    Kind.LATEST: rules.GREATEST,
}


@dataclass(frozen=True, slots=True)
class Register:
    """One register: `column` is the place of its values in `Arriving.values`; None where it is of rows.

    FLOAT_SUM, MOMENTS and FOLD read float64 values, the others int64. A FOLD has a rule of its own.
    """

    kind: Kind
    column: int | None = None
    own: Rule | None = None

    @property
    def rule(self) -> Rule:
        """How partial results are combined, and the cell of no rows."""
        return _RULES[self.kind] if self.own is None else self.own

    @property
    def flip(self) -> int:
        """-1 where values or times are kept as complements, so that the greatest is the least; else 0."""
        return -1 if self.kind in (Kind.LEAST, Kind.LEAST_OF, Kind.FIRST) else 0
