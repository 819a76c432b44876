"""Functions that users wrote, as loops over cells: the lift of every row, and the combine rule of parts.

A part is one float or a few, kept as a row of cells. The loops are written out for the number of floats,
because Numba knows tuples of fixed length only. Functions are called with Python floats and tuples of them at
both speeds; what Numba cannot compile goes on as plain Python. Loops are kept per function, so that the
replicas of a step, and a second run, do not compile again.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

from penstock.kernels.by_rule import QUERIES, SWEEPS, UPDATES, add_rule
from penstock.kernels.loops import Function, Loop, loop
from penstock.kernels.rules import Cells, Rule, merge

_NUMBERS = count()
"""No two folds share a rule's name, and so a loop, even if one is made where another was."""


class Careful(Loop):
    """A loop that stays plain where Numba cannot compile it."""

    refusal: str | None = None
    """Why it is not compiled, once that has been tried."""

    @classmethod
    def of(cls, inner: Loop) -> Careful:
        """The same loop, careful, and not in the on-disk cache: its code is not the package's."""
        return cls(inner._source, inner._letters, rules=inner._rules, cached=False)

    def at(self, compiled: bool) -> Function:
        """The loop at one of its two speeds, if it has both."""
        if compiled and self.refusal is None:
            try:
                return self.compiled
            except Exception as cause:  # Numba's errors have no common ground below this
                self.refusal = _reason(cause)
        return self.plain


@loop()
def add_parts(cells: Cells, parts: Cells, state: Cells) -> None:
    """Combine the part of each row into its cell: parts float64[n, width], state float64[m, width]."""
    for i in range(cells.shape[0]):
        merge(state, cells[i], parts, i)


@cache
def fold_rule(name: str, combine: Callable[[Any, Any], Any], zero: tuple[float, ...], *, alone: bool) -> Rule:
    """The combine rule of a fold. `alone`: its parts are floats, not tuples of one."""
    width = len(zero)
    into = _part([f"float(into[i, {place}])" for place in range(width)], alone)
    other = _part([f"float(other[j, {place}])" for place in range(width)], alone)
    source = f"""
def merge(into, i, other, j):
    part = combine({into}, {other})
    {_stores("into[i, {}]", width, alone)}
"""
    merging = Loop(_made(source, "merge", {"combine": Loop(combine, None)}), None)
    rule = Rule(f"fold {name} {next(_NUMBERS)}", True, zero, merging)
    add_rule(rule, cached=False)
    for loops in (SWEEPS, UPDATES, QUERIES):
        loops[rule.name] = Careful.of(loops[rule.name])
    return rule


@cache
def lift_loop(lift: Callable[[Any], Any], names: tuple[str, ...], width: int, *, alone: bool) -> Careful:
    """The loop (columns float64[n_columns, n], parts float64[width, n]) that lifts every row."""
    row = namedtuple("row", names)  # type: ignore[misc]  # the names are the user's columns
    values = ", ".join(f"columns[{place}, i]" for place in range(len(names)))
    source = f"""
def lift_rows(columns, parts):
    for i in range(parts.shape[1]):
        part = lift(row({values}))
        {_stores("parts[{}, i]", width, alone)}
"""
    made = _made(source, "lift_rows", {"lift": Loop(lift, None), "row": row})
    return Careful(made, "F2 F2", cached=False)


@cache
def lower_loop(lower: Callable[[Any], Any], width: int, *, alone: bool) -> Careful:
    """The loop (cells float64[n, width], results float64[n]) that makes results of combined parts."""
    source = f"""
def lower_cells(cells, results):
    for i in range(cells.shape[0]):
        results[i] = lower({_part([f"cells[i, {place}]" for place in range(width)], alone)})
"""
    return Careful(_made(source, "lower_cells", {"lower": Loop(lower, None)}), "F2 F", cached=False)


@cache
def add_loop(rule: Rule) -> Careful:
    """The loop that adds parts of rows to cells under a fold's rule."""
    return Careful.of(add_parts.under(rule.merge, "Ir F2 F2"))


def _reason(cause: Exception) -> str:
    """Numba's reason in one line: its first names only the pass that failed, and colours come between."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(cause).splitlines()]
    told = [line for line in lines if line and not line.startswith("Failed in nopython")]
    return told[0] if told else type(cause).__name__


def _part(values: list[str], alone: bool) -> str:
    return values[0] if alone else f"({', '.join(values)},)"


def _stores(target: str, width: int, alone: bool) -> str:
    places = range(width)
    return "; ".join(f"{target.format(p)} = part{'' if alone else f'[{p}]'}" for p in places)


def _made(source: str, name: str, space: dict[str, Any]) -> Function:
    exec(compile(source, "<fold>", "exec"), space)  # noqa: S102  # our own text, with numbers put in
    function: Function = space[name]
    return function
