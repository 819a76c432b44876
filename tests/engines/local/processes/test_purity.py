"""Functions that could tell that they run in a copy of the program, and those that could not."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.engines.local.processes.pool import find_shared_state

LIMIT = 3
WORDS = re.compile(r"\w+")
cache: dict[int, int] = {}
total = 0


class Seen:
    """A class, whose objects hold something."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, row: Any) -> Any:
        self.rows.append(row)
        return row


def plain(row: Any) -> Any:
    return {"v": math.sqrt(row.v) + LIMIT + len(WORDS.findall(row.text)) + sum(x for x in (1, 2))}


def calls(row: Any) -> Any:
    return plain(row)


def looks_up(row: Any) -> Any:
    return cache.get(row.v)


def calls_what_looks_up(row: Any) -> Any:
    return looks_up(row)


def counts(row: Any) -> Any:
    global total  # noqa: PLW0603  # the point
    total += 1
    return row


def recurses(row: Any) -> Any:
    return recurses(row.next) if row.next else row


def counter() -> Callable[[Any], Any]:
    n = 0

    def count(row: Any) -> int:
        nonlocal n
        n += 1
        return n

    return count


def with_inner_count(row: Any) -> int:
    n = 0

    def step() -> None:
        nonlocal n
        n += 1

    step()
    return n


def capture(value: Any) -> Callable[[Any], Any]:
    return lambda row: value


def with_default(row: Any, rows: list[Any] = []) -> Any:  # noqa: B006  # the point
    rows.append(row)


@pytest.mark.parametrize(
    "call",
    [plain, calls, recurses, with_inner_count, capture((1, "a", None)), capture(plain), lambda r: r],
)
def test_a_function_of_constants_modules_classes_and_such_functions_shares_nothing(call: Any) -> None:
    assert find_shared_state(call) is None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (looks_up, "it uses cache, a dict that may change"),
        (calls_what_looks_up, "it calls looks_up, and it uses cache, a dict that may change"),
        (counts, "it sets total, which the rest of the program can see"),
        (counter(), "it sets n, which the rest of the program can see"),
        (capture([1]), "it uses value, a list that may change"),
        (capture(looks_up), "it calls value, and it uses cache, a dict that may change"),
        (with_default, "it uses default 1, a list that may change"),
        (Seen(), "it is an object, which may have a state of its own"),
        (Seen().rows.append, "it is an object, which may have a state of its own"),
        (functools.partial(plain), "it is an object, which may have a state of its own"),
    ],
)
def test_what_could_differ_in_a_copy_is_named(call: Any, reason: str) -> None:
    assert find_shared_state(call) == reason


def test_a_function_with_attributes_or_with_a_name_that_has_no_value_yet_may_change() -> None:
    def remembers(row: Any) -> Any:
        return later

    assert find_shared_state(remembers) == "it uses later, a cell that may change"
    later = 1
    assert find_shared_state(remembers) is None
    remembers.calls = 0  # type: ignore[attr-defined]  # the point
    assert find_shared_state(remembers) == "it has attributes, which it may change"
