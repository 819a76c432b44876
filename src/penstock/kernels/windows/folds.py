"""Users' folds as loops: rows lifted and combined into cells, cells into windows, windows lowered.

A part is one float or a few, kept as a row of cells. The loops are written out for the number of columns
and of floats, because Numba knows tuples of fixed length only. Functions are called with Python floats and
tuples of them at both speeds; what Numba cannot compile runs as plain Python. A loop is made once for all
functions that say the same (`user_functions.py`), so that the replicas of a step, and a second run, compile
nothing.

The rows of one slot go straight into slices by a step of the slice loop, where there is nothing else to do
(`python -m bench windows`, fold); else accumulator by accumulator. Loops that call `combine` write in `at`
which row they are at before they do, so that a failure can be reported.
"""

from __future__ import annotations

import ast
from functools import cache

from penstock.frozen import Frozen
from penstock.kernels.inline import Function, Step, inline_steps
from penstock.kernels.loops import Loop
from penstock.kernels.user_functions import FunctionSource, GeneratedFunction
from penstock.kernels.windows import slice_loop
from penstock.kernels.windows.accumulate import Rule
from penstock.kernels.windows.slice_loop import add_single, scan_block


class FoldFunctions(Frozen):
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


def build_fold_rule(name: str, combine: Function, zero: tuple[float, ...], *, alone: bool) -> Rule:
    """Return the combine rule of a fold. `alone`: its parts are floats, not tuples of one."""
    written = combine if isinstance(combine, FunctionSource) else FunctionSource(combine)
    return _build_fold_rule(name, written, tuple(map(repr, zero)), alone)


@cache
def _build_fold_rule(name: str, combine: FunctionSource, zero: tuple[str, ...], alone: bool) -> Rule:
    """Build a rule; numbers come as text, because the two zeros differ and NaN equals itself."""
    width = len(zero)
    text = f"""
def merge_parts(into, i, other, j):
    {_each("into[i, {}]", width)} = combined(
        {_each("float(into[i, {}])", width)} {_each("float(other[j, {}])", width)}
    )
"""
    space = {"combined": combine_function(combine, width, alone)}
    merge = GeneratedFunction(text, "merge_parts", space, None, cached=combine.is_stable)
    return Rule(f"fold {name}", True, tuple(map(float, zero)), merge)


@cache
def combine_function(combine: FunctionSource, width: int, alone: bool) -> GeneratedFunction:
    """Return two parts as one: `combined(a0, …, b0, …)`, all as floats side by side.

    A strict one fails on parts without NaN and infinities that become one, as Python would.
    """
    check = "pass"
    if combine.strict:
        now, was = (_sum_of(f"({side}{{0}} - {side}{{0}})", width) for side in ("p", "a"))
        was += f" + {_sum_of('(b{0} - b{0})', width)}"
        check = f"if {now} != 0.0 and {was} == 0.0: raise ValueError('not a finite number')"
    text = f"""
def combined({_each("a{}", width)} {_each("b{}", width)}):
    part = combine({_part("a{}", width, alone)}, {_part("b{}", width, alone)})
    {_each("p{}", width)} = {_floats(width, alone)}
    {check}
    return {_each("p{}", width)}
"""
    return GeneratedFunction(text, "combined", {"combine": combine}, None)


@cache
def lift_function(lift: FunctionSource, names: tuple[str, ...], width: int, alone: bool) -> GeneratedFunction:
    """Return the part of a row from its columns: `lifted(v0, …)`, all as floats."""
    values = _each("v{}", len(names))
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
    n, check = len(of.names), "pass"
    if strict:
        is_nan = " or ".join(f"np.isnan(c{place}[i])" for place in range(n))
        parts = _sum_of("(q{0} - q{0})", of.width)
        check = f"if {parts} != 0.0 and not ({is_nan}): raise ValueError('not a finite number')"
    text = f"""
def probe({_each("c{}", n)}):
    for i in range(c0.shape[0]):
        {_each("q{}", of.width)} = lifted({_each("float(c{}[i])", n)})
        {check}
"""
    return GeneratedFunction(text, "probe", row_functions(of), "Fr " * n, cached=of.lift.is_stable)


@cache
def build_lift_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (columns…, parts float64[n, width]) that lifts every row."""
    n = len(of.names)
    text = f"""
def lift_rows({_each("c{}", n)} parts):
    for i in range(c0.shape[0]):
        {_each("parts[i, {}]", of.width)} = lifted({_each("float(c{}[i])", n)})
"""
    return GeneratedFunction(text, "lift_rows", row_functions(of), "Fr " * n + "F2", cached=of.lift.is_stable)


@cache
def build_lower_loop(lower: FunctionSource, width: int, *, alone: bool) -> GeneratedFunction:
    """Return the loop (cells float64[n, width], results float64[n]) that makes results of combined parts."""
    text = f"""
def lower_cells(cells, results):
    for i in range(cells.shape[0]):
        results[i] = lower({_part("float(cells[i, {}])", width, alone)})
"""
    return GeneratedFunction(text, "lower_cells", {"lower": lower}, "F2 F", cached=lower.is_stable)


@cache
def build_single_loop(of: FoldFunctions) -> GeneratedFunction:
    """Return the loop (times, columns…, row, …, counts, state, at) that folds the rows of slot 0.

    Its step in the frame `add_single` keeps the part of a block that lies in one slice in local numbers.

    counts  int64[m]           rows per cell
    state   float64[m, width]  parts
    at      int64[1]           written: a row of the cell that is being combined
    """
    n, parts = len(of.names), _each("p{}", of.width)
    columns, cell_parts = _each("c{}", n), _each("state[cell, {}]", of.width)
    add_row = f"{parts} = combined({parts} *lifted({_each('float(v{}[j])', n)}))"
    entry = f"""
def fold_single(times, {columns} row, clock, rings, spare, late, counts, state, at):
    stopped = add_single(times, row, clock, rings, spare, late)
    return stopped
"""
    step = f"""
def fold_block(now, start, stop, first, last, *, of, {columns} counts, state, at):
    {"; ".join(f"v{place} = c{place}[start:stop]" for place in range(n))}
    if first == last:
        cell = np.uint64(of.base + (first & of.mask))
        at[0] = start
        {parts} = {cell_parts}
        for j in range(now.shape[0]):
            {add_row}
        {cell_parts} = {parts}
        counts[cell] += stop - start
    else:
        for j in range(now.shape[0]):
            id_ = of.base_id + slice_at(now[j] - of.base_time, of.period, of.inverse, of.offsets)
            cell = np.uint64(of.base + (id_ & of.mask))
            at[0] = start + j
            {parts} = {cell_parts}
            {add_row}
            {cell_parts} = {parts}
            counts[cell] += 1
"""
    steps: dict[str, Step] = {"add_single": add_single, "scan_block": scan_block, "add_block": step}
    text = ast.unparse(inline_steps(entry, steps))
    signature = "Ir " + "Fr " * n + "i I I2 I I I F2 I"
    space = {**vars(slice_loop), **row_functions(of)}
    return GeneratedFunction(text, "fold_single", space, signature, cached=of.is_stable)


def row_functions(of: FoldFunctions) -> dict[str, Loop]:
    """Return what loops over rows call: `lifted` and `combined`."""
    return {
        "lifted": lift_function(of.lift, of.names, of.width, of.alone),
        "combined": combine_function(of.combine, of.width, of.alone),
    }


def _each(pattern: str, n: int) -> str:
    """Return `p0, p1,` with a comma at the end, so that one number unpacks as well."""
    return " ".join(f"{pattern.format(place)}," for place in range(n))


def _sum_of(pattern: str, n: int) -> str:
    return " + ".join(pattern.format(place) for place in range(n))


def _part(pattern: str, width: int, alone: bool) -> str:
    return pattern.format(0) if alone else f"({_each(pattern, width)})"


def _floats(width: int, alone: bool) -> str:
    """Return the floats of a part; text, which float() would take, is no number."""
    return _each("float(1.0 * part)" if alone else "float(1.0 * part[{}])", width)
