"""WindFlow's own tests of windows and joins: random degrees and batch sizes, and sums that must not move.

The streams are those of its win_tests and join_tests; the sums are counted again in plain Python.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case

FEATURE = "WindFlow's tests of windows and joins"


def win_rows(n_keys: int, length: int) -> list[list[tuple[int, int, int]]]:
    """WindFlow's win_tests stream: 1 to `length` per key, 1 to 501 us apart, in batches."""
    draw = random.Random(1)
    t, rows = 0, []
    for value in range(1, length + 1):
        for key in range(n_keys):
            t += draw.randint(1, 501)
            rows.append((t, key, value))
    bounds = sorted(draw.sample(range(len(rows)), 4))
    return [rows[low:high] for low, high in pairwise([0, *bounds, len(rows)])]


def win_test(engine: str, pattern: Any, window: Any, degrees: random.Random) -> int:
    """Filter the even values, give each three times, add two, sum in windows; the sum of all sums."""
    case = Case(engine)

    def spread() -> dict[str, Any]:
        return {"parallelism": degrees.randint(1, 9), "batch_size": degrees.randint(1, 10)}

    rows = case.timed_source(
        "t k:int64 v", *win_rows(3, 40), time_unit="us", parallelism=degrees.randint(1, 9)
    )
    even = rows.filter(col("v") % 2 == 0, **spread())
    tripled = even.flat_map(lambda row: [row, row, row], schema=even.schema, **spread())
    added = tripled.with_columns(v=col("v") + 2, **spread()).key_by("k")
    sums = added.window(
        window, pattern=pattern, partial=isinstance(window, type(ps.count_window(1))), **spread()
    )
    return sum(case.run(sums.aggregate(s=ps.sum("v"))).values("s"))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["keyed", "parallel", "paned", "map_reduce"])
@pytest.mark.parametrize(
    "window", [ps.tumbling("5 ms"), ps.sliding("8 ms", every="2 ms"), ps.count_window(7)], ids=str
)
def test_windflow_s_window_test_has_the_same_sum_for_all_degrees(
    engine: str, pattern: str, window: Any
) -> None:
    rows = [(t, v + 2) for batch in win_rows(3, 40) for t, _, v in batch if v % 2 == 0]
    times = 4 if str(window).startswith("sliding") else 1  # every row is in 8 / 2 windows
    degrees = random.Random(2)
    for _ in range(3):
        assert win_test(engine, pattern, window, degrees) == times * 3 * sum(v for _, v in rows)


def join_rows(seed: int, sign: int, n: int) -> list[tuple[int, int, int]]:
    """WindFlow's join_tests stream: values 1 to n of one sign, 1 to 251 ms apart, four keys."""
    draw, t, rows = random.Random(seed), 0, []
    for i in range(1, n + 1):
        t += draw.randint(1, 251)
        rows.append((t, i % 4, sign * i))
    return rows


@pytest.mark.slow
def test_windflow_s_join_test_has_the_same_sum_for_all_degrees(engine: str) -> None:
    left, right = join_rows(1234, 1, 60), join_rows(4321, -1, 60)
    by_key = defaultdict(list)
    for u, k, w in right:
        by_key[k].append((u, w))
    wanted = sum(v * w for t, k, v in left for u, w in by_key[k] if abs(t - u) <= 1000)
    draw = random.Random(3)
    for _ in range(3):
        case = Case(engine)
        size = draw.randint(1, 20)
        pipes = [
            case.timed_source(
                columns,
                *(rows[at : at + size] for at in range(0, 60, size)),
                time_unit="ms",
                delay="1 min",
                name=columns[0],
            )
            for columns, rows in (("t k:int64 v", left), ("u:int64 j:int64 w:int64", right))
        ]
        pairs = pipes[0].join(
            pipes[1],
            on=ps.equal("k", "j"),
            within="1 s",
            layout=(draw.randint(1, 4), draw.randint(1, 4)),
        )
        assert sum(case.run(pairs.select(p=col("v") * col("w"))).values("p")) == wanted
