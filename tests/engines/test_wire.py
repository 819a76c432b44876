"""Failures cross from another process as what they were."""

from __future__ import annotations

import json

import pytest

from penstock import errors
from penstock.engines.wire import failure_from_dict, failure_to_dict
from penstock.errors import EngineError, FunctionError, PenstockError, Where


def send_failure(failure: Exception) -> PenstockError:
    return failure_from_dict(json.loads(json.dumps(failure_to_dict(failure, 3))))


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)],
)
def test_an_error_of_ours_arrives_as_it_was(kind: type[PenstockError]) -> None:
    failure = kind("a fact", step="sums", where=Where("a.py", 7), detail="so and so", hint="do this")
    error = send_failure(failure)
    assert type(error) is kind
    assert str(error) == str(failure)
    assert (error.step, error.where, error.hint) == ("sums", Where("a.py", 7), "do this")


@pytest.mark.parametrize(
    "cause", [ZeroDivisionError("division by zero"), KeyError("k"), ValueError(), OSError(2, "no such file")]
)
def test_what_a_users_function_raised_is_still_the_cause(cause: Exception) -> None:
    failure = FunctionError("function f failed on a row")
    failure.__cause__ = cause
    error = send_failure(failure).__cause__
    assert type(error) is type(cause)
    assert str(error) == str(cause)


class Own(Exception):
    """An exception that the other process need not know."""


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (Own("text"), "Own: text"),
        (Mute(1, 2), "Mute: (its text cannot be shown: RuntimeError)"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode"),
    ],
)
def test_another_cause_is_told_by_its_name(cause: Exception, text: str) -> None:
    failure = FunctionError("function f failed on a row")
    failure.__cause__ = cause
    assert str(send_failure(failure).__cause__).startswith(text)


def test_what_is_no_error_of_ours_is_told_with_its_trace() -> None:
    try:
        raise MemoryError("too much")
    except MemoryError as failure:
        error = send_failure(failure)
    assert isinstance(error, EngineError)
    assert error.fact == "a worker failed: MemoryError"
    assert "test_wire.py" in str(error.detail)
