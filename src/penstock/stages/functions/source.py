"""The source of a user's function of one row, as a syntax tree that is surely its own.

The text of a file may have changed since it was imported, or a line may hold several lambdas: the file is
compiled again and must give the same code. Constants behind names are read now and compared later: if one has
changed, what was built from it no longer holds.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from penstock.frozen import dataclass
from penstock.stages.functions.types import NotCompilable

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function of one row: the name of its argument, its statements, and the values behind its names."""

    function: FunctionType
    argument: str
    body: list[ast.stmt]
    constants: dict[str, object] = field(default_factory=dict)

    def value(self, name: str) -> object:
        """Returns the value behind a name that is not local, and remembers it for `is_unchanged`."""
        value = _resolve_name(self.function, name)
        self.constants[name] = value
        return value

    def is_unchanged(self) -> bool:
        """Returns whether all names still have the values that were read."""
        return all(_resolve_name(self.function, name) is value for name, value in self.constants.items())


def read_source(call: Callable[..., Any]) -> FunctionSource:
    """Returns the source of a plain function; raises NotCompilable if it has state, or cannot be read."""
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
    """Returns the functions of a file and its code objects, by the line on which each begins."""
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
    """Returns whether a code object is of this function and not of another on the same line."""
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
