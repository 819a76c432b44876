"""Users' folds as loops: rows lifted and combined into cells, cells into windows, windows lowered.

A part is one float or a few, kept as a row of cells. The loops are written out for the number of columns and
of floats, because Numba knows tuples of fixed length only. Functions are called with Python floats and tuples
of them at both speeds; what Numba cannot compile goes on as plain Python. A loop is made once for all
functions that say the same (`written.py`), so that the replicas of a step, and a second run, compile nothing.

Loops that call `combine` note in `at` where they are before they do, so that a failure can be told of.
"""

from __future__ import annotations

from functools import cache
from itertools import count

from penstock.frozen import dataclass
from penstock.kernels.by_rule import QUERIES, SWEEPS, UPDATES, add_rule
from penstock.kernels.careful import Careful, Generated
from penstock.kernels.loops import Function, Loop, loop
from penstock.kernels.rules import Cells, Rule, merge
from penstock.kernels.written import Written

_NUMBERS = count()
"""No two folds share a rule's name, and so a loop, even if one is made where another was."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The lift and combine of a fold.

    names   the columns that lift reads
    width   how many floats a part has
    alone   parts are floats, not tuples of one
    """

    lift: Written
    combine: Written
    names: tuple[str, ...]
    width: int
    alone: bool

    @property
    def lasting(self) -> bool:
        """Whether machine code of both can be kept for the next process."""
        return self.lift.lasting and self.combine.lasting


@loop()
def add_parts(cells: Cells, parts: Cells, state: Cells, at: Cells) -> None:
    """Combine the part of each row into its cell: parts float64[n, width], state float64[m, width]."""
    for i in range(cells.shape[0]):
        at[0] = i
        merge(state, cells[i], parts, i)


def fold_rule(name: str, combine: Function, zero: tuple[float, ...], *, alone: bool) -> Rule:
    """The combine rule of a fold. `alone`: its parts are floats, not tuples of one."""
    written = combine if isinstance(combine, Written) else Written(combine)
    return _fold_rule(name, written, tuple(map(repr, zero)), alone)


@cache
def _fold_rule(name: str, combine: Written, zero: tuple[str, ...], alone: bool) -> Rule:
    """As `fold_rule`; the numbers come as words, because the two zeros differ and NaN is itself."""
    width = len(zero)
    a, b = ([f"float({each}, {p}])" for p in range(width)] for each in ("into[i", "other[j"))
    text = f"""
def merge_parts(into, i, other, j):
    {_numbers("p", width)} = combined({", ".join(a + b)})
    {_stores("into[i, {}]", width)}
"""
    merging = Generated(text, "merge_parts", {"combined": combined(combine, width, alone)}, None)
    rule = Rule(f"fold {name} {next(_NUMBERS)}", True, tuple(map(float, zero)), merging)
    add_rule(rule, cached=False)
    for loops in (SWEEPS, UPDATES, QUERIES):
        loops[rule.name] = Careful.of(loops[rule.name], cached=combine.lasting)
    return rule


@cache
def combined(combine: Written, width: int, alone: bool) -> Generated:
    """Two parts as one: `combined(a0, …, b0, …)`, all as floats side by side.

    A strict one fails on parts without NaN and infinities that become one, as Python would.
    """
    a, b = ([f"{each}{p}" for p in range(width)] for each in "ab")
    check = "pass"
    if combine.strictly:
        after = [f"p{p}" for p in range(width)]
        was, now = (" + ".join(f"({each} - {each})" for each in parts) for parts in (a + b, after))
        check = f"if {now} != 0.0 and {was} == 0.0: raise ValueError('not a finite number')"
    text = f"""
def combined({", ".join(a + b)}):
    part = combine({_part(a, alone)}, {_part(b, alone)})
    {_numbers("p", width)} = {_floats(width, alone)}
    {check}
    return {_numbers("p", width)}
"""
    return Generated(text, "combined", {"combine": combine}, None)


@cache
def lifted(lift: Written, names: tuple[str, ...], width: int, alone: bool) -> Generated:
    """The part of a row from its columns: `lifted(v0, …)`, all as floats."""
    values = ", ".join(f"v{place}" for place in range(len(names)))
    check = "" if alone else f"if len(part) != {width}: raise ValueError('a part has {width} numbers')"
    text = f"""
row = namedtuple("row", {names!r})
def lifted({values}):
    part = lift(row({values}))
    {check}
    return {_floats(width, alone)}
"""
    return Generated(text, "lifted", {"lift": lift}, None)


@cache
def probe_loop(of: Functions, *, strictly: bool = False) -> Generated:
    """The loop (columns…) that lifts every row for nothing: it raises if one fails.

    Where lift cannot fail, nothing is left of it once it is compiled. `strictly`, for lifts on which Python
    may raise where machine code does not: it also fails on a row without NaN whose part is NaN or infinite.
    """
    check = "pass"
    if strictly:
        parts = " + ".join(f"(q{place} - q{place})" for place in range(of.width))
        given = " or ".join(f"np.isnan({value})" for value in _values(of).split(", "))
        check = f"if {parts} != 0.0 and not ({given}): raise ValueError('not a finite number')"
    text = f"""
def probe({_columns(of)}):
    for i in range(c0.shape[0]):
        {_numbers("q", of.width)} = lifted({_values(of)})
        {check}
"""
    letters = " ".join(["Fr"] * len(of.names))
    return Generated(text, "probe", {"lifted": _lifted(of)}, letters, cached=of.lift.lasting)


@cache
def lift_loop(of: Functions) -> Generated:
    """The loop (columns…, parts float64[n, width]) that lifts every row."""
    text = f"""
def lift_rows({_columns(of)}, parts):
    for i in range(c0.shape[0]):
        {_numbers("p", of.width)} = lifted({_values(of)})
        {_stores("parts[i, {}]", of.width)}
"""
    letters = " ".join([*["Fr"] * len(of.names), "F2"])
    return Generated(text, "lift_rows", {"lifted": _lifted(of)}, letters, cached=of.lift.lasting)


@cache
def cells_loop(of: Functions) -> Generated:
    """The loop (cells, columns…, state, at) that lifts rows and combines them into their cells.

    Rows of one cell that follow each other are combined without looking at it again.
    """
    text = f"""
def fold_cells(cells, {_columns(of)}, state, at):
    n = cells.shape[0]
    i = 0
    while i < n:
        cell = cells[i]
        at[0] = i
        {_loads("state[cell, {}]", of.width)}
        while i < n and cells[i] == cell:
            {_numbers("q", of.width)} = lifted({_values(of)})
            {_numbers("p", of.width)} = combined({_numbers("p", of.width)} {_numbers("q", of.width)})
            i += 1
        {_stores("state[cell, {}]", of.width)}
"""
    letters = " ".join(["Ir", *["Fr"] * len(of.names), "F2", "I"])
    return Generated(text, "fold_cells", steps_of(of), letters, cached=of.lasting)


@cache
def lower_loop(lower: Written, width: int, *, alone: bool) -> Generated:
    """The loop (cells float64[n, width], results float64[n]) that makes results of combined parts."""
    text = f"""
def lower_cells(cells, results):
    for i in range(cells.shape[0]):
        results[i] = lower({_part([f"float(cells[i, {place}])" for place in range(width)], alone)})
"""
    return Generated(text, "lower_cells", {"lower": lower}, "F2 F", cached=lower.lasting)


@cache
def add_loop(rule: Rule) -> Careful:
    """The loop that adds parts of rows to cells under a fold's rule."""
    return Careful.of(add_parts.under(rule.merge, "Ir F2 F2 I"))


def steps_of(of: Functions) -> dict[str, Loop]:
    """What loops over rows call: `lifted` and `combined`."""
    return {"lifted": _lifted(of), "combined": combined(of.combine, of.width, of.alone)}


def _lifted(of: Functions) -> Generated:
    return lifted(of.lift, of.names, of.width, of.alone)


def _columns(of: Functions) -> str:
    return ", ".join(f"c{place}" for place in range(len(of.names)))


def _values(of: Functions) -> str:
    return ", ".join(f"float(c{place}[i])" for place in range(len(of.names)))


def _numbers(letter: str, width: int) -> str:
    """`p0, p1, ` with a comma at the end, so that one number unpacks as well."""
    return "".join(f"{letter}{place}, " for place in range(width)).rstrip()


def _part(values: list[str], alone: bool) -> str:
    return values[0] if alone else f"({', '.join(values)},)"


def _floats(width: int, alone: bool) -> str:
    """The floats of a part; text, which float() would take, is no number."""
    parts = ["part"] if alone else [f"part[{place}]" for place in range(width)]
    return "".join(f"float(1.0 * {each}), " for each in parts).rstrip()


def _loads(source: str, width: int) -> str:
    return "; ".join(f"p{place} = float({source.format(place)})" for place in range(width))


def _stores(target: str, width: int) -> str:
    return "; ".join(f"{target.format(place)} = p{place}" for place in range(width))
