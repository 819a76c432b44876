"""Why a row failed, in words."""

from __future__ import annotations

from penstock.errors import RowFailure, describe_cause


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
