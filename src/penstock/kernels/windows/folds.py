"""Users' folds as loops: rows lifted and combined into cells, cells into windows, windows lowered.

A part is one float or a few, kept as a row of cells. The loops are written out for the number of columns
and of floats, because Numba knows tuples of fixed length only. Functions are called with Python floats and
tuples of them at both speeds; what Numba cannot compile runs as plain Python. A loop is made once for all
functions that say the same (`compile/user_functions.py`), so that the replicas of a step, and a second run,
compile nothing.

Rows go straight into slices by steps of the slice loop, one loop per fold, where there is nothing else to
do (`python -m bench windows`, fold); else accumulator by accumulator. Loops that call `combine` write in
`at` which row they are at before they do, so that a failure can be reported.
"""

from __future__ import annotations

import ast
from functools import cache
from itertools import count
from typing import Any

from penstock.frozen import dataclass
from penstock.kernels.compile.inline import inline_steps
from penstock.kernels.compile.loops import Function, Loop, loop
from penstock.kernels.compile.user_functions import CheckedFunction, FunctionSource, GeneratedFunction
from penstock.kernels.windows import slice_loop
from penstock.kernels.windows.accumulate import Cells, Rule, merge
from penstock.kernels.windows.slice_loop import add_keyed, add_keyed_block, add_single, scan_block
from penstock.kernels.windows.tree import QUERIES, SWEEPS, UPDATES, define_loops

_NUMBERS = count()
"""No two folds share a rule's name, and so a loop, even if one is made where another was."""


@dataclass(frozen=True, slots=True)
class FoldFunctions:
    """The lift and combine of a fold.

    names   the columns that lift reads
    width   the number of floats of a part
    alone   parts are floats, not tuples of one
    """

    lift: FunctionSource
    combine: FunctionSource
    names: tuple[str, ...]
    width: int
    alone: bool

    @property
    def is_stable(self) -> bool:
        """Return whether machine code of both can be kept for the next process."""
        return self.lift.is_stable and self.combine.is_stable


@loop()
def add_parts(cells: Cells, parts: Cells, state: Cells, at: Cells) -> None:
    """Combine the part of each row into its cell: parts float64[n, width], state float64[m, width]."""
    for i in range(cells.shape[0]):
        at[0] = i
        merge(state, cells[i], parts, i)


def build_fold_rule(name: str, combine: Function, zero: tuple[float, ...], *, alone: bool) -> Rule:
    """Return the combine rule of a fold. `alone`: its parts are floats, not tuples of one."""
    written = combine if isinstance(combine, FunctionSource) else FunctionSource(combine)
    return _build_fold_rule(name, written, tuple(map(repr, zero)), alone)


@cache
def _build_fold_rule(name: str, combine: FunctionSource, zero: tuple[str, ...], alone: bool) -> Rule:
    """Build a rule; numbers come as text, because the two zeros differ and NaN equals itself."""
    width = len(zero)
    a, b = ([f"float({cell}, {p}])" for p in range(width)] for cell in ("into[i", "other[j"))
    text = f"""
def merge_parts(into, i, other, j):
    {_numbers("p", width)} = combined({", ".join(a + b)})
    {_stores("into[i, {}]", width)}
"""
    merging = GeneratedFunction(
        text, "merge_parts", {"combined": combine_function(combine, width, alone)}, None
    )
    rule = Rule(f"fold {name} {next(_NUMBERS)}", True, tuple(map(float, zero)), merging)
    define_loops(rule, cached=False)
    for loops in (SWEEPS, UPDATES, QUERIES):
        loops[rule.name] = CheckedFunction.of(loops[rule.name], cached=combine.is_stable)
    return rule


@cache
def combine_function(combine: FunctionSource, width: int, alone: bool) -> GeneratedFunction:
    """Return two parts as one: `combined(a0, …, b0, …)`, all as floats side by side.

    A strict one fails on parts without NaN and infinities that become one, as Python would.
    """
    a, b = ([f"{side}{p}" for p in range(width)] for side in "ab")
    check = "pass"
    if combine.strict:
        after = [f"p{p}" for p in range(width)]
        was, now = (" + ".join(f"({part} - {part})" for part in parts) for parts in (a + b, after))
        check = f"if {now} != 0.0 and {was} == 0.0: raise ValueError('not a finite number')"
    text = f"""
def combined({", ".join(a + b)}):
    part = combine({_part(a, alone)}, {_part(b, alone)})
    {_numbers("p", width)} = {_floats(width, alone)}
    {check}
    return {_numbers("p", width)}
"""
    return GeneratedFunction(text, "combined", {"combine": combine}, None)


@cache
def lift_function(lift: FunctionSource, names: tuple[str, ...], width: int, alone: bool) -> GeneratedFunction:
    """Return the part of a row from its columns: `lifted(v0, …)`, all as floats."""
    values = ", ".join(f"v{place}" for place in range(len(names)))
    check = "" if alone else f"if len(part) != {width}: raise ValueError('a part has {width} numbers')"
    text = f"""
row = namedtuple("row", {names!r})
def lifted({values}):
    part = lift(row({values}))
    {check}
    return {_floats(width, alone)}
"""
    return GeneratedFunction(text, "lifted", {"lift": lift}, None)


@cache
def build_probe_loop(of: FoldFunctions, *, strict: bool = False) -> GeneratedFunction:
    """Return the loop (columns…) that lifts every row for nothing: it raises if one fails.

    Where lift cannot fail, nothing is left of it once it is compiled. `strict`, for lifts on which Python
    may raise where machine code does not: it also fails on a row without NaN whose part is NaN or infinite.
    """
    check = "pass"
    if strict:
        parts = " + ".join(f"(q{place} - q{place})" for place in range(of.width))
        is_nan = " or ".join(f"np.isnan({value})" for value in _values(of).split(", "))
        check = f"if {parts} != 0.0 and not ({is_nan}): raise ValueError('not a finite number')"
    text = f"""
def probe({_columns(of)}):
    for i in range(c0.shape[0]):
        {_numbers("q", of.width)} = lifted({_values(of)})
        {check}
"""
    signature = " ".join(["Fr"] * len(of.names))
    return GeneratedFunction(
        text, "probe", {"lifted": _lift_function(of)}, signature, cached=of.lift.is_stable
    )


@cache
def build_lift_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (columns…, parts float64[n, width]) that lifts every row."""
    text = f"""
def lift_rows({_columns(of)}, parts):
    for i in range(c0.shape[0]):
        {_numbers("p", of.width)} = lifted({_values(of)})
        {_stores("parts[i, {}]", of.width)}
"""
    signature = " ".join([*["Fr"] * len(of.names), "F2"])
    return GeneratedFunction(
        text, "lift_rows", {"lifted": _lift_function(of)}, signature, cached=of.lift.is_stable
    )


@cache
def build_cells_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (cells, columns…, state, at) that lifts rows and combines them into their cells.

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
    signature = " ".join(["Ir", *["Fr"] * len(of.names), "F2", "I"])
    return GeneratedFunction(text, "fold_cells", row_functions(of), signature, cached=of.is_stable)


@cache
def build_lower_loop(lower: FunctionSource, width: int, *, alone: bool) -> GeneratedFunction:
    """Return the loop (cells float64[n, width], results float64[n]) that makes results of combined parts."""
    text = f"""
def lower_cells(cells, results):
    for i in range(cells.shape[0]):
        results[i] = lower({_part([f"float(cells[i, {place}])" for place in range(width)], alone)})
"""
    return GeneratedFunction(text, "lower_cells", {"lower": lower}, "F2 F", cached=lower.is_stable)


@cache
def build_add_loop(rule: Rule) -> CheckedFunction:
    """Return the loop that adds parts of rows to cells under a fold's rule."""
    return CheckedFunction.of(add_parts.with_rules("Ir F2 F2 I", merge=rule.merge))


def row_functions(of: FoldFunctions) -> dict[str, Loop]:
    """Return what loops over rows call: `lifted` and `combined`."""
    return {"lifted": _lift_function(of), "combined": combine_function(of.combine, of.width, of.alone)}


def _lift_function(of: FoldFunctions) -> GeneratedFunction:
    return lift_function(of.lift, of.names, of.width, of.alone)


def _columns(of: FoldFunctions) -> str:
    return ", ".join(f"c{place}" for place in range(len(of.names)))


def _values(of: FoldFunctions) -> str:
    return ", ".join(f"float(c{place}[i])" for place in range(len(of.names)))


def _numbers(letter: str, width: int) -> str:
    """`p0, p1, ` with a comma at the end, so that one number unpacks as well."""
    return "".join(f"{letter}{place}, " for place in range(width)).rstrip()


def _part(values: list[str], alone: bool) -> str:
    return values[0] if alone else f"({', '.join(values)},)"


def _floats(width: int, alone: bool) -> str:
    """Return the floats of a part; text, which float() would take, is no number."""
    parts = ["part"] if alone else [f"part[{place}]" for place in range(width)]
    return "".join(f"float(1.0 * {part}), " for part in parts).rstrip()


def _loads(source: str, width: int) -> str:
    return "; ".join(f"p{place} = float({source.format(place)})" for place in range(width))


def _stores(target: str, width: int) -> str:
    return "; ".join(f"{target.format(place)} = p{place}" for place in range(width))


_FOLD_BLOCK = """
def fold_block(
    now, start, stop, least, greatest, first, last, base, mask, base_time, base_id,
    *, COLUMNS, clock, inverse, offsets, counts, state, at
):
    VIEWS
    if first == last:
        cell = np.uint64(base + (first & mask))
        at[0] = start
        LOADS
        for j in range(now.shape[0]):
            PARTS = combined(PARTS *lifted(VALUES))
        STORES
        counts[cell] += stop - start
    else:
        period = clock[PERIOD]
        for j in range(now.shape[0]):
            id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
            cell = np.uint64(base + (id_ & mask))
            at[0] = start + j
            LOADS
            PARTS = combined(PARTS *lifted(VALUES))
            STORES
            counts[cell] += 1
"""

_FOLD_SINGLE = """
def fold_single(times, COLUMNS, row, clock, inverse, offsets, rings, spare, late, counts, state, at):
    stopped = add_single(times, row, clock, inverse, offsets, rings, spare, late)
    return stopped
"""

_FOLD_ROW = """
def fold_row(row, cell, *, COLUMNS, counts, state, at):
    at[0] = row
    LOADS
    PARTS = combined(PARTS *lifted(ROW_VALUES))
    STORES
    counts[cell] += 1
"""

_FOLD_KEYED = """
def fold_keyed(slots, times, COLUMNS, row, clock, inverse, offsets, rings, spare, late, counts, state, at):
    stopped = add_keyed(slots, times, row, clock, inverse, offsets, rings, spare, late)
    return stopped
"""


@cache
def build_single_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (times, columns…, row, …, counts, state, at) that folds the rows of slot 0.

    Its step in the frame `add_single` keeps the part of a block that lies in one slice in local numbers.

    counts  int64[m]           rows per cell
    state   float64[m, width]  parts
    at      int64[1]           written: a row of the cell that is being combined
    """
    steps = {"add_single": add_single, "scan_block": scan_block, "add_block": _fill(_FOLD_BLOCK, of)}
    return _build_pass(of, _FOLD_SINGLE, "fold_single", steps, "Ir")


@cache
def build_keyed_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (slots, times, columns…) that folds the rows of all slots, as `build_single_loop`."""
    steps = {"add_keyed": add_keyed, "add_keyed_block": add_keyed_block, "add_row": _fill(_FOLD_ROW, of)}
    return _build_pass(of, _FOLD_KEYED, "fold_keyed", steps, "Ir Ir")


def _build_pass(
    of: FoldFunctions, entry: str, name: str, steps: dict[str, Any], first_codes: str
) -> GeneratedFunction:
    text = ast.unparse(inline_steps(_fill(entry, of), steps))
    signature = " ".join([first_codes, *["Fr"] * len(of.names), "i I f Ir I2 I I I F2 I"])
    space = {**vars(slice_loop), **row_functions(of)}
    return GeneratedFunction(text, name, space, signature, cached=of.is_stable)


def _fill(template: str, of: FoldFunctions) -> str:
    """Write a template out for a fold's number of columns and of floats."""
    columns, parts = range(len(of.names)), range(of.width)
    words = {
        "COLUMNS": ", ".join(f"c{c}" for c in columns),
        "VIEWS": "; ".join(f"v{c} = c{c}[start:stop]" for c in columns),
        "LOADS": "; ".join(f"p{p} = state[cell, {p}]" for p in parts),
        "ROW_VALUES": ", ".join(f"float(c{c}[row])" for c in columns),
        "VALUES": ", ".join(f"float(v{c}[j])" for c in columns),
        "PARTS": " ".join(f"p{p}," for p in parts),
        "STORES": "; ".join(f"state[cell, {p}] = p{p}" for p in parts),
    }
    for word, text in words.items():
        template = template.replace(word, text)
    return template
