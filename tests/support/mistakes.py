"""A mistake that a user can make while building a graph, and what the error must say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import penstock as ps
from tests.support.trades import trades


@dataclass(frozen=True, slots=True)
class Mistake:
    """`build` makes the mistake on a fresh stream of trades; the error is a `kind`, says `fact`, ...

    step  names the step, or None where the mistake belongs to no step
    also  words that the detail or the hint must have
    """

    label: str
    build: Callable[[Any], object]  # of a MultiPipe; Any, because many mistakes are mistakes of type
    kind: type[ps.PenstockError]
    fact: str
    step: str | None = None
    also: str = ""

    def __str__(self) -> str:
        return self.label


def check_refusal(mistake: Mistake) -> ps.PenstockError:
    """Make the mistake; check type, fact, step, the line that made it, and that there is a hint."""
    with pytest.raises(ps.PenstockError) as caught:
        mistake.build(trades())
    error = caught.value
    assert type(error) is mistake.kind, error
    assert mistake.fact in error.fact
    assert error.step == mistake.step
    assert mistake.also in f"{error.detail} {error.hint}"
    assert error.hint, "an error says what to do"
    _points_at(error, mistake.build)
    return error


def _points_at(error: ps.PenstockError, build: Callable[[Any], object]) -> None:
    """The error's place is a line of the function that made the mistake."""
    assert isinstance(build, FunctionType)
    assert error.where is not None, error
    assert Path(error.where.file).resolve() == Path(build.__code__.co_filename).resolve()
    assert error.where.line in _lines(build.__code__)


def _lines(code: CodeType) -> range:
    last = max(line for _, _, line in code.co_lines() if line is not None)
    inner = [_lines(const)[-1] for const in code.co_consts if isinstance(const, CodeType)]
    return range(code.co_firstlineno, max([last, *inner]) + 1)
