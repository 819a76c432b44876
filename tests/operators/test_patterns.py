"""Which pattern is taken when the user leaves it open, and the reason that explain() gives."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.windows import Choice, KeyedWindows, choose_pattern
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.windows import case

COUNT: dict[str, Aggregate] = {"n": spec.count()}
COLLECT: dict[str, Aggregate] = {"all": spec.collect("v")}


def choice(
    windows: Any,
    degree: int = 4,
    *,
    aggregates: dict[str, Aggregate] = COUNT,
    key: tuple[str, ...] = (),
    n_keys: int | None = None,
) -> Choice:
    op = KeyedWindows(windows=windows, aggregates=aggregates)
    return choose_pattern(op, case(op, [], key=key).up, degree, n_keys=n_keys)


def test_one_replica_is_keyed() -> None:
    assert choice(sliding(10, 2), 1) == Choice("keyed", "there is one replica")


def test_keys_come_first() -> None:
    pattern = choice(sliding(10, 2), key=("k",))
    assert pattern == Choice("keyed", "the keys (k) spread the rows, and nothing is combined after")
    assert choice(sliding(10, 2), key=("k",), n_keys=4).pattern == "keyed"


def test_overlapping_windows_of_no_key_are_paned() -> None:
    pattern = choice(sliding(10, 2))
    assert pattern.pattern == "paned"
    assert pattern.reason == (
        "there is no key, and windows overlap: each is made of up to 5 slices, which are shared out"
    )


def test_windows_of_too_few_keys_are_spread_otherwise() -> None:
    pattern = choice(sliding(10, 2), key=("k",), n_keys=3)
    assert pattern.pattern == "paned"
    assert pattern.reason.startswith("there are 3 keys for 4 replicas, and ")


def test_tumbling_windows_of_no_key_are_mapped_and_reduced() -> None:
    pattern = choice(tumbling(10))
    assert pattern.pattern == "map_reduce"
    assert pattern.reason == "there is no key, and windows do not overlap: the rows of each are shared out"


def test_whole_windows_of_no_key_are_dealt() -> None:
    pattern = choice(sliding(10, 2), aggregates=COLLECT)
    reason = "there is no key, and results are made from the rows of whole windows"
    assert pattern == Choice("parallel", reason)


@pytest.mark.parametrize("windows", [session(5), count_window(2), {"x": tumbling(5), "y": session(5)}])
def test_sessions_and_count_windows_are_keyed_whatever_the_keys(windows: Any) -> None:
    reason = "there is no key, but sessions and count windows can only be spread by key"
    assert choice(windows) == Choice("keyed", reason)
