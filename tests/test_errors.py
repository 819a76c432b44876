"""Errors: the fact first, then where, detail and hint, each only if there is one."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import PenstockError, Where, nearest_first

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
