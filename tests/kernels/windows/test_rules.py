"""The laws of every combine rule: associative, with a neutral cell, at both speeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows import accumulate as rules
from penstock.kernels.windows.accumulate import Rule

fixed = settings(deadline=None, derandomize=True, max_examples=80)
every_rule = pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.name)
small = st.integers(-3, 3)


def cells_of(rule: Rule) -> st.SearchStrategy[tuple[float, ...]]:
    """Cells that rows can make; small numbers, so that floats are exact and ties are common."""
    if rule is rules.MOMENTS:
        values = st.lists(small.map(float), max_size=5)
        return values.map(_moments)
    if rule is rules.MAX_COUNT:
        return st.tuples(small, st.integers(1, 3)) | st.just(rule.neutral)
    return st.tuples(*(small.map(float) if rule.floats else small for _ in rule.neutral)) | st.just(
        rule.neutral
    )


def _moments(values: list[float]) -> tuple[float, ...]:
    if not values:
        return (0.0, 0.0, 0.0)
    mean = sum(values) / len(values)
    return (float(len(values)), mean, sum((value - mean) ** 2 for value in values))


def merge_cells(rule: Rule, *cells: tuple[float, ...]) -> tuple[float, ...]:
    """The cells merged from the left."""
    both = np.array(cells, rule.dtype)
    for j in range(1, len(cells)):
        rule.merge.plain(both, 0, both, j)
    return tuple(both[0].tolist())


@pytest.mark.slow
@every_rule
@fixed
@given(st.data())
def test_how_cells_are_bracketed_does_not_matter(rule: Rule, data: Any) -> None:
    a, b, c = (data.draw(cells_of(rule)) for _ in range(3))
    left = merge_cells(rule, merge_cells(rule, a, b), c)
    right = merge_cells(rule, a, merge_cells(rule, b, c))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)


@every_rule
@fixed
@given(st.data())
def test_the_order_of_cells_does_not_matter(rule: Rule, data: Any) -> None:
    a, b = data.draw(cells_of(rule)), data.draw(cells_of(rule))
    assert merge_cells(rule, a, b) == pytest.approx(merge_cells(rule, b, a), rel=1e-12, abs=1e-12)


@every_rule
@fixed
@given(st.data())
def test_a_neutral_cell_changes_nothing_on_either_side(rule: Rule, data: Any) -> None:
    cell = data.draw(cells_of(rule))
    assert merge_cells(rule, cell, rule.neutral) == pytest.approx(cell)
    assert merge_cells(rule, rule.neutral, cell) == pytest.approx(cell)


def test_a_loop_over_cells_without_a_rule_says_so() -> None:
    cells = rules.COUNT.neutral_cells(2)
    with pytest.raises(AssertionError, match="runs under a rule"):
        rules.merge(cells, 0, cells, 1)
