"""Steps put into a loop by source: one frame, many bodies, and no call between them.

A frame is written once and calls its steps by name (`least, greatest = scan_block(now)`). An entry, the loop
that is run, calls the frame and shares variables with its steps (`counts=counts`). `inline_steps` writes the
frame's body in the place of that call, and the bodies of the steps in the place of theirs, so that Numba sees
one function over local numbers.

Why not rules that Numba inlines: a step needs the arrays of its entry, which only a tuple could carry through
the frame, and Numba counts references for each array that leaves a tuple. That cost half of the speed of
`python -m bench windows`.

A step is an ordinary function. Its parameters are what the frame passes; its keyword-only parameters are
variables of the entry, which it may change, and one that is called `of` stands for many: `of.base` is the
variable `base`. It may return at its end only; its own names are renamed. A frame, which takes **shared,
keeps its names, so that its steps can use them.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

Function = Callable[..., Any]
Step = Function | str
"""A function, or the text of one."""


def write_function(entry: Function, steps: Mapping[str, Function]) -> Function:
    """Return the function of which `inline_steps` gives the source."""
    source: Any = entry
    space = dict(source.__globals__)
    for step in steps.values():
        named: Any = step
        used = {
            name: named.__globals__[name] for name in named.__code__.co_names if name in named.__globals__
        }
        assert all(space.get(name, value) is value for name, value in used.items()), "one name, one meaning"
        space |= used
    # Why: Numba keeps machine code beside the file that a function is said to be from.
    exec(compile(inline_steps(entry, steps), inspect.getfile(entry), "exec"), space)  # noqa: S102  # our own source
    function: Function = space[source.__name__]
    return function


def inline_steps(entry: Step, steps: Mapping[str, Step]) -> ast.Module:
    """Return the source of `entry` with the bodies of steps in the place of their calls."""
    host = _parse(entry)
    host.decorator_list = []
    host = _Inliner({name: _parse(step) for name, step in steps.items()}).visit(host)
    return ast.fix_missing_locations(ast.Module([host], []))


class _Inliner(ast.NodeTransformer):
    def __init__(self, steps: Mapping[str, ast.FunctionDef]) -> None:
        self._steps = steps

    def visit_Expr(self, node: ast.Expr) -> Any:
        return self._expand(node.value, []) or node

    def visit_Assign(self, node: ast.Assign) -> Any:
        return self._expand(node.value, node.targets) or node

    def _expand(self, call: ast.expr, targets: list[ast.expr]) -> list[ast.stmt] | None:
        """Return the statements of a step, if `call` calls one."""
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in self._steps
        ):
            return None
        step = copy.deepcopy(self._steps[call.func.id])
        shared = {parameter.arg for parameter in step.args.kwonlyargs}
        is_frame = step.args.kwarg is not None
        names = [node for node in ast.walk(step) if isinstance(node, ast.Name)]
        written = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        assigned = set() if is_frame else written - shared
        renamed = {name: f"{name}_{step.name}" for name in assigned}
        statements: list[ast.stmt] = []
        for parameter, value in zip(step.args.args, call.args, strict=True):
            if isinstance(value, ast.Name) and parameter.arg not in assigned:
                renamed[parameter.arg] = value.id
                continue
            renamed[parameter.arg] = f"{parameter.arg}_{step.name}"
            statements.append(ast.Assign([ast.Name(renamed[parameter.arg], ast.Store())], value))
        has_docstring = ast.get_docstring(step) is not None
        statements += [_Renamer(renamed).visit(statement) for statement in step.body[int(has_docstring) :]]
        if isinstance(statements[-1], ast.Return):
            returned = statements.pop()
            assert isinstance(returned, ast.Return)
            assert returned.value is not None, "a step returns something or nothing"
            statements += [ast.Assign(targets, returned.value)] if targets else []
        whole = ast.Module(statements, [])
        assert not any(isinstance(node, ast.Return) for node in ast.walk(whole)), "a step returns at its end"
        self.generic_visit(whole)
        return whole.body


class _Renamer(ast.NodeTransformer):
    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = renamed

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._renamed.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "of":
            return ast.Name(node.attr, node.ctx)
        self.generic_visit(node)
        return node


def _parse(step: Step) -> ast.FunctionDef:
    text = step if isinstance(step, str) else textwrap.dedent(inspect.getsource(step))
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef), "a step is a function"
    return function
