"""The text of a user's function of one row, as a syntax tree that is surely its own.

Text may have changed since it was read, or a line may hold several lambdas: the file is compiled again and
must give the same code. Constants behind names are read now, and watched: if one is another later, what was
made of it is no longer true.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from penstock.frozen import dataclass
from penstock.stages.row_types import Stays

Written = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Source:
    """A function of one row: the name of its argument, its statements, and what its names stand for."""

    function: FunctionType
    argument: str
    body: list[ast.stmt]
    watched: dict[str, object] = field(default_factory=dict)

    def value(self, name: str) -> object:
        """What a name that is not local stands for; remembered, to see whether it stays so."""
        found = _looked_up(self.function, name)
        self.watched[name] = found
        return found

    def unchanged(self) -> bool:
        """Whether all names still stand for what they stood for."""
        return all(_looked_up(self.function, name) is value for name, value in self.watched.items())


def source_of(call: Callable[..., Any]) -> Source:
    """The text of a plain function; Stays if it has a state of its own, or cannot be read."""
    if not isinstance(call, FunctionType):
        raise Stays("it is not a plain function")
    code = call.__code__
    if call.__defaults__ or call.__kwdefaults__ or code.co_argcount != 1 or code.co_kwonlyargcount:
        raise Stays("it takes more than a row")
    try:
        lines, _ = inspect.findsource(call)
        functions, codes = _read("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        raise Stays("its text cannot be read") from None
    here = [node for node in functions.get(code.co_firstlineno, []) if _is_of(node, code)]
    if len(here) != 1 or not any(each == code for each in codes.get(code.co_firstlineno, [])):
        raise Stays("its text cannot be found, or has changed since it was read")
    (node,) = here
    body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    return Source(call, node.args.args[0].arg, body)


@lru_cache(maxsize=8)
def _read(text: str) -> tuple[dict[int, list[Written]], dict[int, list[CodeType]]]:
    """The functions of a file and the codes that it compiles to, by the line on which each begins."""
    tree = ast.parse(text)
    functions: dict[int, list[Written]] = {}
    for node in ast.walk(tree):
        if isinstance(node, Written):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            line = min([node.lineno, *(each.lineno for each in decorators)])
            functions.setdefault(line, []).append(node)
    codes: dict[int, list[CodeType]] = {}
    waiting = [compile(text, "<text>", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        codes.setdefault(code.co_firstlineno, []).append(code)
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return functions, codes


def _is_of(node: Written, code: CodeType) -> bool:
    """Whether a code is of this function and not of another on the same line: it gives what this gives."""
    last: ast.expr | ast.stmt = node.body if isinstance(node, ast.Lambda) else node.body[-1]
    span = (last.lineno, last.end_lineno, last.col_offset, last.end_col_offset)
    return isinstance(node, ast.FunctionDef) or span in set(code.co_positions())


def _looked_up(function: FunctionType, name: str) -> object:
    free = function.__code__.co_freevars
    if name in free and function.__closure__ is not None:
        try:
            return function.__closure__[free.index(name)].cell_contents
        except ValueError:
            return None
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, None)


def _not_itself(made: ast.expr) -> ast.expr:
    return ast.Compare(made, [ast.NotEq()], [made])


def _beyond(made: ast.expr) -> ast.expr:
    return ast.Compare(_absolute(made), [ast.Eq()], [ast.Constant(math.inf)])


def _absolute(made: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("abs", ast.Load()), [ast.Call(ast.Name("float", ast.Load()), [made], [])], [])


def _within(made: ast.expr) -> ast.expr:
    return ast.Compare(_absolute(made), [ast.Lt()], [ast.Constant(math.inf)])


SPELT = {"isnan": _not_itself, "isinf": _beyond, "isfinite": _within, "fabs": _absolute}
"""Functions of `math` that do the same in the machine, written with operators: the text needs no module."""
