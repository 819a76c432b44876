"""What holds for all inputs: accounts add up, cuts do not matter unless rows are late, and a twin agrees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.aggregates import collect, count
from penstock.operators.join_predicate import band, left, right
from penstock.operators.rows import Accumulate
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import KeyedWindows
from penstock.plan.plan import Ref
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.engines.reference.test_joins import LEFT, RIGHT
from tests.support.plans import PlanBuilder, PlanRun, Rows, late_port

pytestmark = pytest.mark.slow

LAW = settings(deadline=None, derandomize=True)

rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(-40, 40), st.integers(0, 3)), max_size=30
)
cuts = st.lists(st.integers(0, 30), max_size=6)
windows = st.one_of(
    st.builds(tumbling, st.integers(1, 20)),
    st.builds(sliding, st.integers(1, 20), st.integers(1, 20)),
    st.builds(session, st.integers(1, 20)),
    st.builds(count_window, st.integers(1, 5), st.integers(1, 5)),
)
specs = st.one_of(windows, st.dictionaries(st.sampled_from("xyz"), windows, min_size=1, max_size=3))
small = st.integers(0, 15)


def cut(all_rows: list[Any], places: list[int]) -> list[Rows]:
    ends = sorted({*(min(place, len(all_rows)) for place in places), len(all_rows)})
    starts = [0, *ends[:-1]]
    return [all_rows[start:end] for start, end in zip(starts, ends, strict=True)]


def run_windows(batches: list[Rows], spec: Any, *, delay: int, lateness: int) -> tuple[PlanRun, Ref]:
    builder = PlanBuilder()
    op = KeyedWindows(windows=spec, aggregates={"n": count(), "all": collect("v")}, lateness=lateness)
    out = builder.add(op, builder.source(*batches, delay=delay), key=("k",))
    return builder.run(), out


@LAW
@given(rows, cuts, specs, small, small)
def test_every_row_is_accounted_for(
    given_rows: list[Any], places: list[int], spec: Any, delay: int, lateness: int
) -> None:
    ran, out = run_windows(cut(given_rows, places), spec, delay=delay, lateness=lateness)
    account = ran.account(out)
    assert account.rows_in == len(given_rows)
    assert account.is_balanced, account
    assert account.late == len(ran.rows(late_port(out)))


@LAW
@given(rows, cuts, cuts, specs, small)
def test_when_nothing_is_late_how_rows_are_cut_does_not_change_the_answer(
    given_rows: list[Any], one: list[int], other: list[int], spec: Any, lateness: int
) -> None:
    first, out = run_windows(cut(given_rows, one), spec, delay=100, lateness=lateness)
    second, _ = run_windows(cut(given_rows, other), spec, delay=100, lateness=lateness)
    assert Counter(map(str, first.rows(out))) == Counter(map(str, second.rows(out)))


@LAW
@given(rows, cuts, st.integers(0, 6), specs, small, small)
def test_merging_adjacent_batches_only_makes_fewer_rows_late(
    given_rows: list[Any], places: list[int], at: int, spec: Any, delay: int, lateness: int
) -> None:
    batches = cut(given_rows, places)
    at = min(at, max(0, len(batches) - 2))
    merged = [*batches[:at], [row for batch in batches[at : at + 2] for row in batch], *batches[at + 2 :]]
    apart, out = run_windows(batches, spec, delay=delay, lateness=lateness)
    together, _ = run_windows(merged, spec, delay=delay, lateness=lateness)
    late_apart, late_together = (Counter(ran.rows(late_port(out))) for ran in (apart, together))
    assert not late_together - late_apart


@LAW
@given(rows, cuts, st.integers(1, 20), st.integers(1, 20))
def test_time_windows_agree_with_a_look_at_every_window_there_could_be(
    given_rows: list[Any], places: list[int], size: int, every: int
) -> None:
    ran, out = run_windows(cut(given_rows, places), sliding(size, every), delay=100, lateness=0)
    expected = Counter(
        (key, start, start + size, n)
        for start in range(-100 * every, 100 * every, every)
        for key in ("a", "b", None)
        if (n := len([row for row in given_rows if row[0] == key and start <= row[1] < start + size]))
    )
    assert Counter(row[:4] for row in ran.rows(out)) == expected


@LAW
@given(rows, cuts, st.sampled_from([0, 5, 100]))
def test_keyed_state_sees_rows_in_order_and_accounts_for_all(
    given_rows: list[Any], places: list[int], delay: int
) -> None:
    builder = PlanBuilder()
    op = Accumulate(function=lambda row, state: [*state, row.t], init=[], schema={"seen": "list<int64>"})
    out = builder.add(op, builder.source(*cut(given_rows, places), delay=delay), key=("k",))
    ran = builder.run()
    assert ran.account(out).is_balanced
    assert all(seen == sorted(seen) for _, seen in ran.rows(out))
    assert ran.account(out).late == 0 or delay < 100


@LAW
@given(rows, rows, cuts, cuts, small, small, st.integers(0, 2))
def test_a_join_gives_every_pair_once_however_the_sides_are_cut(
    lefts: list[Any], rights: list[Any], one: list[int], other: list[int], older: int, newer: int, width: int
) -> None:
    builder = PlanBuilder()
    a = builder.source(*cut(lefts, one), schema=LEFT, delay=100)
    b = builder.source(*cut(rights, other), schema=RIGHT, time="u", time_unit="us", delay=100)
    on = ["k", band("v", "w", width)]
    out = builder.add(StreamJoin(on=on, within=(older, newer), how="full"), a, b)
    ran = builder.run()
    paired = [
        (x, y)
        for x in lefts
        for y in rights
        if x[0] == y[0] is not None and abs(x[2] - y[2]) <= width and -newer <= y[1] - x[1] <= older
    ]
    expected = Counter((*x, *y[1:]) for x, y in paired)
    expected += Counter((*x, None, None) for x in lefts if not any(x == left for left, _ in paired))
    expected += Counter((y[0], None, None, *y[1:]) for y in rights if not any(y == r for _, r in paired))
    assert Counter(ran.rows(out)) == expected
    assert ran.account(out).is_balanced


@LAW
@given(rows, rows, cuts, cuts, small, small, st.sampled_from(["semi", "anti"]))
def test_semi_and_anti_joins_divide_the_left_rows_however_the_sides_are_cut(
    lefts: list[Any], rights: list[Any], one: list[int], other: list[int], older: int, newer: int, how: str
) -> None:
    builder = PlanBuilder()
    a = builder.source(*cut(lefts, one), schema=LEFT, delay=100)
    b = builder.source(*cut(rights, other), schema=RIGHT, time="u", time_unit="us", delay=100)
    on = ["k", left("v") >= right("w")]
    out = builder.add(StreamJoin(on=on, within=(older, newer), how=how), a, b)
    ran = builder.run()
    expected = Counter(
        x
        for x in lefts
        if any(x[0] == y[0] is not None and x[2] >= y[2] and -newer <= y[1] - x[1] <= older for y in rights)
        == (how == "semi")
    )
    assert Counter(ran.rows(out)) == expected
    assert ran.account(out).is_balanced


@LAW
@given(rows, rows, cuts, cuts, st.integers(1, 20), st.integers(1, 20))
def test_a_join_by_windows_gives_every_pair_once_for_each_window_that_it_shares(
    lefts: list[Any], rights: list[Any], one: list[int], other: list[int], size: int, every: int
) -> None:
    builder = PlanBuilder()
    a = builder.source(*cut(lefts, one), schema=LEFT, delay=100)
    b = builder.source(*cut(rights, other), schema=RIGHT, time="u", time_unit="us", delay=100)
    out = builder.add(StreamJoin(on="k", window=sliding(size, every), how="full"), a, b)
    ran = builder.run()
    expected: Counter[tuple[Any, ...]] = Counter()
    for start in range(-100 * every, 100 * every, every):
        xs, ys = ([row for row in side if start <= row[1] < start + size] for side in (lefts, rights))
        bounds = () if size == every else (start, start + size)
        expected += Counter((*x, *y[1:], *bounds) for x in xs for y in ys if x[0] == y[0] is not None)
        expected += Counter(
            (*x, None, None, *bounds) for x in xs if x[0] is None or x[0] not in {y[0] for y in ys}
        )
        expected += Counter(
            (y[0], None, None, *y[1:], *bounds) for y in ys if y[0] is None or y[0] not in {x[0] for x in xs}
        )
    assert Counter(ran.rows(out)) == expected
    assert ran.account(out).is_balanced


@LAW
@given(rows, rows, cuts, cuts, st.integers(0, 4), st.integers(0, 4), small)
def test_a_join_with_the_last_rows_agrees_with_a_look_back_from_every_row(
    lefts: list[Any],
    rights: list[Any],
    one: list[int],
    other: list[int],
    n_left: int,
    n_right: int,
    lateness: int,
) -> None:
    # these sources number no rows: rows of one time are ordered by their columns, and the last one differs
    lefts = [(k, t, i) for i, (k, t, _) in enumerate(lefts)]
    rights = [(k, u, i) for i, (k, u, _) in enumerate(rights)]
    builder = PlanBuilder()
    a = builder.source(*cut(lefts, one), schema=LEFT, delay=100)
    b = builder.source(*cut(rights, other), schema=RIGHT, time="u", time_unit="us", delay=100)
    last_rows = (n_left, n_right) if n_left or n_right else 1
    out = builder.add(StreamJoin(on="k", last_rows=last_rows, lateness=lateness), a, b)
    ran = builder.run()
    n_left, n_right = (n_left, n_right) if n_left or n_right else (1, 1)
    sides = [(0, x) for x in lefts] + [(1, y) for y in rights]
    in_order = sorted(sides, key=lambda item: (item[1][1], item[0], item[1][0] or "", item[1][2]))
    expected: Counter[tuple[Any, ...]] = Counter()
    for place, (side, row) in enumerate(in_order):
        count = n_left if side == 1 else n_right
        before = [old for old_side, old in in_order[:place] if old_side != side]
        for old in before[max(0, len(before) - count) :]:
            x, y = (row, old) if side == 0 else (old, row)
            expected += Counter([(*x, *y[1:])] if x[0] == y[0] is not None else [])
    assert Counter(ran.rows(out)) == expected
    assert ran.account(out).is_balanced


def build_join(bound: int, lateness: int, how: str, by: str) -> StreamJoin:
    """Build a join of any kind: `by` says what bounds it."""
    bounds: dict[str, Any] = {
        "within": {"within": (bound, bound // 2)},
        "tumbling": {"window": tumbling(bound + 1)},
        "sliding": {"window": sliding(bound + 2, bound // 2 + 1)},
        "last": {"last_rows": (2, 3) if how == "inner" else (3, 0) if how == "right" else (0, 3)},
    }
    if by == "last" and how == "full":
        how = "left"
    return StreamJoin(on="k", how=how, lateness=lateness, **bounds[by])


joins = st.builds(
    build_join,
    small,
    small,
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.sampled_from(["within", "tumbling", "sliding", "last"]),
)


@LAW
@given(rows, rows, cuts, cuts, joins)
def test_what_a_step_releases_is_never_behind_the_watermark_it_forwards(
    lefts: list[Any], rights: list[Any], one: list[int], other: list[int], join: StreamJoin
) -> None:
    builder = PlanBuilder()
    a = builder.source(*cut(lefts, one), schema=LEFT, delay=5)
    b = builder.source(*cut(rights, other), schema=RIGHT, time="u", time_unit="us", delay=5)
    pairs = builder.add(join, a, b)
    spec: Any = {"x": tumbling(7), "y": session(3), "z": count_window(2)}
    first = builder.add(KeyedWindows(windows=spec, aggregates={"n": count()}, lateness=3), pairs)
    second = builder.add(KeyedWindows(windows=tumbling(1), aggregates={"n": count()}), first)
    third = builder.add(
        Accumulate(function=lambda row, state: state + 1, init=0, schema={"c": "int64"}), pairs, key=("k",)
    )
    ran = builder.run()
    assert [ran.account(step).late for step in (first, second, third)] == [0, 0, 0]
