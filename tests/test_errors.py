"""Errors: the fact first, then where, detail and hint, each only if there is one."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import PenstockError, RowFailure, Where, describe_cause, nearest_first

KINDS = (
    ps.GraphError,
    ps.SchemaError,
    ps.TimeError,
    ps.FunctionError,
    ps.ConnectorError,
    ps.CheckpointError,
    ps.EngineError,
    ps.NotSupported,
)


def test_an_error_says_everything_it_knows() -> None:
    error = ps.SchemaError(
        'there is no column "prise"',
        step="filter",
        where=Where("shop.py", 12),
        detail="the columns are price, user",
        hint='did you mean "price"?',
    )
    assert str(error).splitlines() == [
        'there is no column "prise"',
        '  where:  step "filter", shop.py:12',
        "  detail: the columns are price, user",
        '  hint:   did you mean "price"?',
    ]


def test_an_error_leaves_out_what_it_does_not_know() -> None:
    assert str(ps.GraphError("nothing to collect")) == "nothing to collect"
    assert str(ps.GraphError("no", step="a")) == 'no\n  where:  step "a"'
    assert str(ps.GraphError("no", where=Where("shop.py", 3))) == "no\n  where:  shop.py:3"


def test_the_innermost_place_stays() -> None:
    error = ps.GraphError("no", step="inner").at("outer", Where("shop.py", 3))
    assert (error.step, error.where) == ("inner", Where("shop.py", 3))
    assert error.at("other", Where("other.py", 1)).where == Where("shop.py", 3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_a_penstock_error(kind: type[PenstockError]) -> None:
    assert issubclass(kind, ps.PenstockError)
    assert kind("no").fact == "no"


def test_names_are_listed_most_alike_first_and_ties_by_name() -> None:
    assert nearest_first("prise", ["user", "item", "price"])[0] == "price"
    assert nearest_first("PRICE", ["pride", "price"]) == ["price", "pride"]
    assert nearest_first("x", ["b", "a"]) == ["a", "b"]
    assert nearest_first("x", []) == []


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_failure_of_ours_says_its_reason_and_a_user_s_exception_its_type_as_well() -> None:
    assert describe_cause(RowFailure("division by zero")) == "division by zero"
    assert describe_cause(ValueError("too big")) == "ValueError: too big"
    assert describe_cause(StopIteration()) == "StopIteration"


def test_an_exception_that_cannot_be_shown_is_still_named() -> None:
    assert describe_cause(Mute()) == "Mute: (its text cannot be shown: RuntimeError)"


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    reason = describe_cause(ValueError("x" * 1_000_000))
    assert reason == f"ValueError: {'x' * 1_000}… (1,000,000 characters)"
