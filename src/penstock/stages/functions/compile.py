"""A row function over columns, compiled by Numba where that changes no answer.

Rows with a null in a column that it reads stay in Python. Without being asked, only floats and bools are
compiled; whole numbers, which wrap at 64 bits, where the user says `compile=True`. If the compiled function
raises, Python finds out on which row.

What is compiled is the syntax tree of the function, which must surely be its own: the text of a file may have
changed since it was imported, or a line may hold several lambdas, so the file is compiled again and must give
the same code. Constants behind names are read now and compared later: if one that was written into the
compiled function has changed, Python goes on alone.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import date, datetime
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.values import days_of, microseconds_of, numbers_of
from penstock.frozen import Frozen, dataclass
from penstock.kernels.user_functions import CheckedFunction, build_row_loop
from penstock.operators.function import RowFunction
from penstock.stages import policy
from penstock.stages.functions.rewrite import NotCompilable, RowProgram, kernel_type_code
from penstock.stages.rows.batch import Ints

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function of one row: the name of its argument, its statements, and the values behind its names."""

    function: FunctionType
    argument: str
    body: list[ast.stmt]
    constants: dict[str, object] = field(default_factory=dict)

    def value(self, name: str) -> object:
        """Return the value behind a name that is not local, and remembers it for `is_unchanged`."""
        value = _resolve_name(self.function, name)
        self.constants[name] = value
        return value

    def is_unchanged(self) -> bool:
        """Return whether all names still have the values that were read."""
        return all(_resolve_name(self.function, name) is value for name, value in self.constants.items())


def read_source(call: Callable[..., Any]) -> FunctionSource:
    """Return the source of a plain function; raise NotCompilable if it has state, or cannot be read."""
    if not isinstance(call, FunctionType):
        raise NotCompilable("it is not a plain function")
    code = call.__code__
    if call.__defaults__ or call.__kwdefaults__ or code.co_argcount != 1 or code.co_kwonlyargcount:
        raise NotCompilable("it takes more than a row")
    try:
        lines, _ = inspect.findsource(call)
        functions, codes = _parse_file("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        raise NotCompilable("its text cannot be read") from None
    here = [node for node in functions.get(code.co_firstlineno, []) if _is_node_of(node, code)]
    if len(here) != 1 or not any(other == code for other in codes.get(code.co_firstlineno, [])):
        raise NotCompilable("its text cannot be found, or has changed since it was read")
    (node,) = here
    body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    return FunctionSource(call, node.args.args[0].arg, body)


@lru_cache(maxsize=8)
def _parse_file(text: str) -> tuple[dict[int, list[FunctionNode]], dict[int, list[CodeType]]]:
    """Return the functions of a file and its code objects, by the line on which each begins."""
    tree = ast.parse(text)
    functions: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            functions.setdefault(line, []).append(node)
    codes: dict[int, list[CodeType]] = {}
    waiting = [compile(text, "<text>", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        codes.setdefault(code.co_firstlineno, []).append(code)
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
    return functions, codes


def _is_node_of(node: FunctionNode, code: CodeType) -> bool:
    """Return whether a code object is of this function and not of another on the same line."""
    last: ast.expr | ast.stmt = node.body if isinstance(node, ast.Lambda) else node.body[-1]
    span = (last.lineno, last.end_lineno, last.col_offset, last.end_col_offset)
    return isinstance(node, ast.FunctionDef) or span in set(code.co_positions())


def _resolve_name(function: FunctionType, name: str) -> object:
    free = function.__code__.co_freevars
    if name in free and function.__closure__ is not None:
        try:
            return function.__closure__[free.index(name)].cell_contents
        except ValueError:
            return None
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, None)


_YEARS = {
    pa.timestamp("us").id: (microseconds_of(datetime.min), microseconds_of(datetime.max)),
    pa.date32().id: (days_of(date.min), days_of(date.max)),
}
_DTYPES = {"F": np.float64, "I": np.int64, "B": np.bool_}


class CompiledResults(Frozen):
    """What was computed for the rows at `indices`; the others, `rest`, are for Python."""

    indices: Ints
    rest: Ints
    columns: dict[str, npt.NDArray[Any]]


class CompiledFunction:
    """One row function of a step.

    down   the columns it returns; None for a predicate
    wraps  the user has said `compile=True`
    compile_after  rows that are processed in Python before it pays to load Numba; None for the default
    """

    def __init__(
        self,
        function: RowFunction,
        up: pa.Schema,
        down: pa.Schema | None,
        *,
        wraps: bool = False,
        compile_after: int | None = None,
    ) -> None:
        self._function, self._up, self._work = function, up, 0
        self._compile_after = policy.SIZES.compile_after if compile_after is None else compile_after
        self._refusal: str | None = None
        self.program: RowProgram | None = None
        try:
            self.program = RowProgram(read_source(function.call), up, down, wraps=wraps)
            self._loop = self._build_loop(self.program, down)
        except NotCompilable as reason:
            self._refusal = str(reason)

    def explain(self) -> list[str]:
        """Return whether the function is compiled, and why not; this tries it."""
        why = self._refusal
        if why is None:
            self._loop.version(True)
            refused = self._loop.refusal
            if refused is None:
                return [f"{self._function} is compiled by Numba; rows with nulls run in Python"]
            why = f"Numba says: {refused}"
        return [f"{self._function} runs in Python, row by row: {why}"]

    def results(self, rows: pa.RecordBatch) -> CompiledResults | None:
        """Return what the compiled function computes; None where only Python will do."""
        self._work += rows.num_rows
        if self._refusal is not None or self.program is None or self._work <= self._compile_after:
            return None
        if not self.program.source.is_unchanged():
            self._refusal = "a value that it uses from outside has changed"
            return None
        if not all(
            _is_within_python_years(rows.column(name)) for name in self.program.passed_through.values()
        ):
            return None
        run = self._loop.version(True)
        if self._loop.refusal is not None:
            self._refusal = f"Numba says: {self._loop.refusal}"
            return None
        columns = [rows.column(name) for name in self.program.inputs]
        indices, rest = _split_by_nulls(columns, rows.num_rows)
        arrays: list[npt.NDArray[Any]] = [
            np.ascontiguousarray(numbers_of(column), _DTYPES[code])
            for column, code in zip(columns, self._input_types, strict=True)
        ]
        inputs = arrays if not len(rest) else [array[indices] for array in arrays]
        results: list[npt.NDArray[Any]] = [
            np.empty(len(indices), _DTYPES[code]) for code in self._output_types
        ]
        try:
            run(*inputs, *results)
        except Exception:  # some row failed: Python finds out which
            return None
        return CompiledResults(indices, rest, dict(zip(self.program.outputs, results, strict=True)))

    def rows(self, rows: pa.RecordBatch, results: CompiledResults, down: pa.Schema) -> pa.RecordBatch:
        """Return the computed columns beside those that are passed through, for the computed rows."""
        assert self.program is not None, "there are results"
        passed_through = self.program.passed_through
        columns = [
            rows.column(passed_through[field.name])
            if field.name in passed_through
            else pa.array(results.columns[field.name], field.type, from_pandas=False)
            for field in down
        ]
        return pa.RecordBatch.from_arrays(columns, schema=down)

    def _build_loop(self, program: RowProgram, down: pa.Schema | None) -> CheckedFunction:
        inputs = "".join(kernel_type_code(self._up.field(name).type) or "" for name in program.inputs)
        if not inputs:
            raise NotCompilable("it does not look at the row")
        types = [pa.bool_() if down is None else down.field(name).type for name in program.outputs]
        outputs = "".join(kernel_type_code(type_) or "" for type_ in types)
        self._input_types, self._output_types = inputs, outputs
        return build_row_loop(program.text, inputs, outputs)


def _is_within_python_years(column: pa.Array) -> bool:
    """Return whether every time is in the years 1 to 9999; Python fails on a row with another."""
    least, most = _YEARS.get(column.type.id, (None, None))
    if least is None or most is None:
        return True
    values = numbers_of(column)  # 1970 in place of null
    return not len(values) or bool(least <= values.min() and values.max() <= most)


def _split_by_nulls(columns: Sequence[pa.Array], n_rows: int) -> tuple[Ints, Ints]:
    """Return the indices of rows without and with a null in these columns."""
    masks = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    if not masks:
        return np.arange(n_rows, dtype=np.int64), np.empty(0, np.int64)
    valid = np.logical_and.reduce(masks)
    return np.flatnonzero(valid), np.flatnonzero(~valid)
