"""check_associative finds folds that windows could not rely on, and lets the others pass."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import SchemaError
from penstock.testing import check_associative

ROWS = [{"v": 1.0}, {"v": -2.5}, {"v": 4.0}, {"v": 0.1}]


def test_a_mean_by_sum_and_count_passes() -> None:
    mean = ps.fold(
        lambda row: (row.v, 1),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        (0.0, 0),
        lambda part: part[0] / part[1],
        type="float64",
    )
    check_associative(mean, ROWS)


def test_a_difference_is_not_associative() -> None:
    wrong = ps.fold(lambda row: row.v, lambda a, b: a - b, 0.0, type="float64", commutative=False)
    with pytest.raises(AssertionError, match="is not"):
        check_associative(wrong, ROWS)


def test_a_mean_of_means_is_not_associative() -> None:
    wrong = ps.fold(
        lambda row: row.v,
        lambda a, b: b if a is None else a if b is None else (a + b) / 2,
        None,
        type="float64",
    )
    with pytest.raises(AssertionError, match="not associative on"):
        check_associative(wrong, ROWS)


def test_a_zero_that_changes_something_is_found() -> None:
    wrong = ps.fold(lambda row: row.v, max, 0.0, type="float64")
    with pytest.raises(AssertionError, match=r"combine\(zero, -2.5\)"):
        check_associative(wrong, ROWS)


def test_joining_text_must_be_declared_as_ordered() -> None:
    text = ps.fold(lambda row: row.s, lambda a, b: a + b, "", type="string")
    with pytest.raises(AssertionError, match="commutative=False"):
        check_associative(text, [{"s": "a"}, {"s": "b"}])
    ordered = ps.fold(lambda row: row.s, lambda a, b: a + b, "", type="string", commutative=False)
    check_associative(ordered, [{"s": "a"}, {"s": "b"}])


def test_what_is_no_fold_is_refused() -> None:
    with pytest.raises(SchemaError, match="is not a fold"):
        check_associative(ps.sum("v"), ROWS)  # type: ignore[arg-type]  # the mistake under test


def test_rows_with_a_null_in_the_columns_of_the_fold_are_left_out_as_in_a_window() -> None:
    total = ps.fold(lambda row: row.v, lambda a, b: a + b, 0.0, columns="v", type="float64")
    check_associative(total, [{"v": 1.0}, {"v": None}, {"v": 2.0}])


def test_a_combine_that_changes_what_it_is_given_passes_and_leaves_the_fold_as_it_was() -> None:
    def extend(a: list[float], b: list[float]) -> list[float]:
        a.extend(b)
        return a

    rows = ps.fold(lambda row: [row.v], extend, [], len, type="int64", commutative=False)
    check_associative(rows, ROWS)
    assert rows.zero == []
