"""Functions of one row that users wrote, as loops over columns.

The text of such a function comes checked and rewritten (`stages/functions/rewrite.py`): it takes numbers
and gives a tuple of numbers. Loops are kept by their text and types, in which all constants are written out,
so that the replicas of a step, a second run, and the next batch of a worker process do not compile again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from penstock.kernels.compile.loops import Function, Loop
from penstock.kernels.compile.user_functions import CheckedFunction


@cache
def build_row_loop(function: str, takes: str, gives: str) -> CheckedFunction:
    """The loop (columns..., results...) that calls `made` for every row.

    function  its text: `def made(_0, _1): return (...)`
    takes     a letter per column, I, F or B; they are all of one length
    gives     a letter per result
    """
    columns = [f"column_{place}" for place in range(len(takes))]
    results = [f"result_{place}" for place in range(len(gives))]
    source = f"""
def make_rows({", ".join([*columns, *results])}):
    for i in range({results[0]}.shape[0]):
        {_targets(results)} = made({", ".join(f"{column}[i]" for column in columns)})
"""
    space: dict[str, object] = {"made": Loop(_define(function, "made", {}), None)}
    signature = " ".join([*(f"{letter}r" for letter in takes), *gives])
    return CheckedFunction(_define(source, "make_rows", space), signature, cached=False)


def _targets(results: Sequence[str]) -> str:
    return "".join(f"{result}[i], " for result in results)


def _define(source: str, name: str, space: dict[str, object]) -> Function:
    exec(compile(source, "<row function>", "exec"), space)  # noqa: S102  # read and written by us
    function = space[name]
    assert callable(function), f"{name} is what the text defines"
    return function
