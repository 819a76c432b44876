"""Laws that hold whatever the rows: how a stream is cut, spread and chained must not change an answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.testing.strategies import cuts, timed_rows
from tests.conformance.case import Case, Outcome
from tests.conformance.law import law

FEATURE = "Laws: cuts, degrees, batch sizes and chaining"
N = 30
SPAN = 30
Rows = list[dict[str, Any]]

WINDOWS: dict[str, Any] = {
    "tumbling": ps.tumbling(10),
    "sliding": ps.sliding(10, 4),
    "hopping": ps.sliding(3, 7),
    "session": ps.session(4),
    "count": ps.count_window(3, 2),
}


def run_windows(
    engine: str, batches: list[Rows], window: str, delay: int, *, lateness: int = 0, **spread: Any
) -> Outcome:
    """Ordered and unordered aggregates per key, and the late rows."""
    case = Case(engine)
    as_tuples = [[(row["t"], row["key"], row["value"]) for row in batch] for batch in batches]
    rows = case.timed_source("t key v", *as_tuples, delay=delay).with_columns(v=col("v") * 2, **spread)
    pipe = rows.key_by("key").window(WINDOWS[window], lateness=lateness, name="w", **spread)
    results = pipe.aggregate(n=ps.count(), s=ps.sum("v"), vs=ps.collect("v"), last=ps.last("v"))
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
@law(N, data=st.data(), rows=timed_rows(span=SPAN))
def test_when_no_row_exceeds_the_delay_cuts_change_nothing(
    engine: str, window: str, data: st.DataObject, rows: Rows
) -> None:
    delay = disorder(rows)
    whole = run_windows(engine, [rows], window, delay)
    parts = run_windows(engine, data.draw(cuts(rows)), window, delay)
    assert as_set(parts.rows()) == as_set(whole.rows())
    assert parts.rows(1) == []
    assert parts.account("w") == whole.account("w")


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@law(N, data=st.data(), rows=timed_rows(span=SPAN), delay=st.integers(0, 20), lateness=st.integers(0, 5))
def test_merging_adjacent_batches_only_makes_fewer_rows_late(
    engine: str, window: str, data: st.DataObject, rows: Rows, delay: int, lateness: int
) -> None:
    fine = data.draw(cuts(rows))
    at = data.draw(st.integers(0, len(fine) - 1))
    coarse = [*fine[:at], [row for batch in fine[at : at + 2] for row in batch], *fine[at + 2 :]]
    before = as_set(run_windows(engine, fine, window, delay, lateness=lateness).rows(1))
    after = as_set(run_windows(engine, coarse, window, delay, lateness=lateness).rows(1))
    assert not after - before


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@law(N, data=st.data(), rows=timed_rows(span=SPAN), degree=st.integers(1, 9), size=st.integers(1, 10))
def test_degrees_and_batch_sizes_change_nothing(
    engine: str, window: str, data: st.DataObject, rows: Rows, degree: int, size: int
) -> None:
    batches = data.draw(cuts(rows))
    plain = run_windows(engine, batches, window, 3)
    spread = run_windows(engine, batches, window, 3, parallelism=degree, batch_size=size)
    assert as_set(spread.rows()) == as_set(plain.rows())
    assert as_set(spread.rows(1)) == as_set(plain.rows(1))
    assert spread.account("w") == plain.account("w")


@pytest.mark.slow
@pytest.mark.parametrize("window", list(WINDOWS))
@law(
    N,
    data=st.data(),
    times=st.lists(st.tuples(st.integers(-SPAN, SPAN), st.sampled_from("ab")), unique=True, max_size=20),
)
def test_the_order_of_arrival_changes_nothing_inside_the_delay(
    engine: str, window: str, data: st.DataObject, times: list[tuple[int, str]]
) -> None:
    # No two rows of a key have one time: those would go by the order of their reader.
    rows = [{"t": t, "key": key, "value": i} for i, (t, key) in enumerate(sorted(times))]
    shuffled = data.draw(st.permutations(rows))
    in_order = run_windows(engine, [rows], window, 0)
    late = run_windows(engine, data.draw(cuts(shuffled)), window, disorder(shuffled))
    assert as_set(late.rows()) == as_set(in_order.rows())


def run_join(engine: str, lefts: list[Rows], rights: list[Rows], bounds: tuple[int, int], how: Any) -> Rows:
    """Pairs of equal keys within the bounds, with a delay that makes nothing late."""
    case = Case(engine)
    names = {"left": "t key v", "right": "u:int64 k:string w:int64"}
    left, right = (
        case.timed_source(
            columns,
            *([(row["t"], row["key"], row["value"]) for row in batch] for batch in batches),
            delay=2 * SPAN,
            name=side,
        )
        for (side, columns), batches in zip(names.items(), (lefts, rights), strict=True)
    )
    return case.run(left.join(right, on=ps.equal("key", "k"), within=bounds, how=how)).rows()


def naively_joined(left: Rows, right: Rows, bounds: tuple[int, int], how: str) -> Rows:
    """The definition: try every left row with every right row."""
    pairs, matched = [], set()
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            close = y["t"] - x["t"] <= bounds[0] and x["t"] - y["t"] <= bounds[1]
            if close and x["key"] is not None and x["key"] == y["key"]:
                pairs.append(joined_row(x, y))
                matched |= {("left", i), ("right", j)}
    if how in ("left", "full"):
        pairs += [joined_row(x, None) for i, x in enumerate(left) if ("left", i) not in matched]
    if how in ("right", "full"):
        pairs += [joined_row(None, y) for j, y in enumerate(right) if ("right", j) not in matched]
    return pairs


def joined_row(x: dict[str, Any] | None, y: dict[str, Any] | None) -> dict[str, Any]:
    """A pair, or one row alone."""
    left = dict.fromkeys(("t", "key", "v")) if x is None else {"t": x["t"], "key": x["key"], "v": x["value"]}
    right = dict.fromkeys(("u", "k", "w")) if y is None else {"u": y["t"], "k": y["key"], "w": y["value"]}
    return {**left, **right}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@law(
    N,
    data=st.data(),
    left=timed_rows(span=SPAN, max_size=12),
    right=timed_rows(span=SPAN, max_size=12),
    bounds=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_a_join_gives_each_pair_once_however_its_inputs_are_cut(
    engine: str, how: str, data: st.DataObject, left: Rows, right: Rows, bounds: tuple[int, int]
) -> None:
    got = run_join(engine, data.draw(cuts(left)), data.draw(cuts(right)), bounds, how)
    assert as_set(got) == as_set(naively_joined(left, right, bounds, how))


@pytest.mark.slow
@law(N, data=st.data(), rows=timed_rows(span=SPAN, max_size=15))
def test_chaining_changes_nothing(engine: str, data: st.DataObject, rows: Rows) -> None:
    batches = [[(row["t"], row["key"], row["value"]) for row in batch] for batch in data.draw(cuts(rows))]
    given_out = []
    for chaining in (True, False):
        case = Case(engine)
        case.graph = ps.PipeGraph("case", chaining=chaining)
        steps = (
            case.timed_source("t key v", *batches, delay=5).with_columns(v=col("v") + 1).filter(col("v") > 0)
        )
        steps = steps.flat_map(lambda row: [{"v": row.v}, {"v": -row.v}], schema={"v": "int64"})
        given_out.append(case.run(steps.with_columns(v=col("v") * 3)).bag("v"))
    assert given_out[0] == given_out[1]
