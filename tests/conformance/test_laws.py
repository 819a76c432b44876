"""Laws that hold whatever the rows: how a stream is cut, spread and chained must not change an answer.

The last two are WindFlow's own tests of windows and joins (win_tests, join_tests): random degrees and
batch sizes, and sums that must stay what they are.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.testing.strategies import cuts, timed_rows
from tests.conformance.case import Case, Outcome

FEATURE = "Laws: cuts, degrees, batch sizes and chaining"
LAW = settings(deadline=None, derandomize=True, max_examples=30)
SPAN = 30
Rows = list[dict[str, Any]]

WINDOWS = {
    "tumbling": ps.tumbling(10),
    "sliding": ps.sliding(10, 4),
    "hopping": ps.sliding(3, 7),
    "session": ps.session(4),
    "count": ps.count_window(3, 2),
}


def windowed(
    engine: str, batches: list[Rows], window: str, delay: int, *, lateness: int = 0, **spread: Any
) -> Outcome:
    """Ordered and unordered aggregates per key, and the late rows."""
    case = Case(engine)
    as_tuples = [[(row["t"], row["key"], row["value"]) for row in batch] for batch in batches]
    rows = case.timed("t key v", *as_tuples, delay=delay).map(v=col("v") * 2, **spread)
    made = rows.key_by("key").window(WINDOWS[window], lateness=lateness, name="w", **spread)
    results = made.aggregate(n=ps.count(), s=ps.sum("v"), vs=ps.collect("v"), last=ps.last("v"))
    return case.run(results, results.late)


def as_set(rows: Rows) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(repr(row) for row in rows)


def disorder(rows: Rows) -> int:
    """How far a row comes behind the latest before it: the delay that makes nothing late."""
    latest, most = -SPAN, 0
    for row in rows:
        latest = max(latest, row["t"])
        most = max(most, latest - row["t"])
    return most


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@LAW
@given(data=st.data(), rows=timed_rows(span=SPAN))
def test_when_no_row_exceeds_the_delay_cuts_change_nothing(
    engine: str, window: str, data: st.DataObject, rows: Rows
) -> None:
    delay = disorder(rows)
    whole = windowed(engine, [rows], window, delay)
    parts = windowed(engine, data.draw(cuts(rows)), window, delay)
    assert as_set(parts.rows()) == as_set(whole.rows())
    assert parts.rows(1) == []
    assert parts.account("w") == whole.account("w")


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@LAW
@given(data=st.data(), rows=timed_rows(span=SPAN), delay=st.integers(0, 20), lateness=st.integers(0, 5))
def test_merging_adjacent_batches_only_makes_fewer_rows_late(
    engine: str, window: str, data: st.DataObject, rows: Rows, delay: int, lateness: int
) -> None:
    fine = data.draw(cuts(rows))
    at = data.draw(st.integers(0, len(fine) - 1))
    coarse = [*fine[:at], [row for batch in fine[at : at + 2] for row in batch], *fine[at + 2 :]]
    before = as_set(windowed(engine, fine, window, delay, lateness=lateness).rows(1))
    after = as_set(windowed(engine, coarse, window, delay, lateness=lateness).rows(1))
    assert not after - before


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@LAW
@given(data=st.data(), rows=timed_rows(span=SPAN), degree=st.integers(1, 9), size=st.integers(1, 10))
def test_degrees_and_batch_sizes_change_nothing(
    engine: str, window: str, data: st.DataObject, rows: Rows, degree: int, size: int
) -> None:
    batches = data.draw(cuts(rows))
    plain = windowed(engine, batches, window, 3)
    spread = windowed(engine, batches, window, 3, parallelism=degree, batch_size=size)
    assert as_set(spread.rows()) == as_set(plain.rows())
    assert as_set(spread.rows(1)) == as_set(plain.rows(1))
    assert spread.account("w") == plain.account("w")


@LAW
@given(data=st.data(), rows=timed_rows(span=SPAN, max_size=15))
def test_chaining_changes_nothing(engine: str, data: st.DataObject, rows: Rows) -> None:
    batches = [[(row["t"], row["key"], row["value"]) for row in batch] for batch in data.draw(cuts(rows))]
    given_out = []
    for chaining in (True, False):
        case = Case(engine)
        case.graph = ps.PipeGraph("case", chaining=chaining)
        steps = case.timed("t key v", *batches, delay=5).map(v=col("v") + 1).filter(col("v") > 0)
        steps = steps.flat_map(lambda row: [{"v": row.v}, {"v": -row.v}], schema={"v": "int64"})
        given_out.append(case.run(steps.map(v=col("v") * 3)).values("v"))
    assert given_out[0] == given_out[1]


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


def win_test(engine: str, pattern: str, window: Any, degrees: random.Random) -> int:
    """Filter the even values, give each three times, add two, sum in windows; the sum of all sums."""
    case = Case(engine)

    def spread() -> dict[str, int]:
        return {"parallelism": degrees.randint(1, 9), "batch_size": degrees.randint(1, 10)}

    rows = case.timed("t k:int64 v", *win_rows(3, 40), time_unit="us", parallelism=degrees.randint(1, 9))
    even = rows.filter(col("v") % 2 == 0, **spread())
    tripled = even.flat_map(lambda row: [row, row, row], schema=even.schema, **spread())
    added = tripled.map(v=col("v") + 2, **spread()).key_by("k")
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
            case.timed(
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
