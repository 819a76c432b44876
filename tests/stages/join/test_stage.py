"""Join stages against brute force: predicates, bounds, layouts, disorder, lateness, restarts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.operators.op import LATE, LATE_RIGHT, OUT, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages import policy
from penstock.stages.build import build_join_stage
from penstock.stages.functions.calls import plain_rows_of
from penstock.stages.join.pairs import JoinResults, RoundResults, RowQuota
from penstock.stages.join.stage import EXPIRY_SHARE, JoinStage
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.stage import StageContext
from penstock.timing.units import TimeType
from tests.naive.joins import holds, join_all, join_last_rows, window_starts

pytestmark = pytest.mark.slow
NAN = math.nan
COLUMNS = {"t": pa.int64(), "k": pa.string(), "x": pa.int64(), "f": pa.float64(), "n": pa.int64()}
TIME = TimeType(pa.int64(), "us")
LEFT, RIGHT = "left", "right"


def stream(prefix: str = "") -> Stream:
    schema = pa.schema([pa.field(prefix + name, type_) for name, type_ in COLUMNS.items()])
    return Stream(schema, time=TIME)


LEFTS, RIGHTS = stream(), stream("r_")


def add_up(left: Any, right: Any) -> bool:
    return ((left.x or 0) + (right.r_x or 0)) % 2 == 0


def add_up_batches(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    sums = np.array(left.column("x").fill_null(0)) // 1 + np.array(right.column("r_x").fill_null(0))
    return pa.array(sums % 2 == 0)


def naive_add_up(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return ((left["x"] or 0) + (right["r_x"] or 0)) % 2 == 0


def naive_less(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left["x"] is not None and right["r_x"] is not None and left["x"] < right["r_x"]


TERMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "key": (ps.equal("k", "r_k"), ("equal", "k", "r_k")),
    "number": (ps.equal("x", "r_x"), ("equal", "x", "r_x")),
    "float": (ps.equal("f", "r_f"), ("equal", "f", "r_f")),
    "band": (ps.band("x", "r_x", 2), ("band", "x", "r_x", 2, False)),
    "strict": (ps.band("x", "r_x", 3, strict=True), ("band", "x", "r_x", 3, True)),
    "floats": (ps.band("f", "r_f", 0.5), ("band", "f", "r_f", 0.5, False)),
    "mixed": (ps.band("x", "r_f", 1.5, strict=True), ("band", "x", "r_f", 1.5, True)),
    "function": (add_up, ("call", naive_add_up)),
    "batch": (ps.batch(add_up_batches), ("call", naive_add_up)),
    "expression": (ps.left("x") < ps.right("r_x"), ("call", naive_less)),
}
"""Each term as it is written, and as the twin has it."""

SMALL = st.integers(-4, 4)
XS = st.one_of(st.none(), SMALL, st.sampled_from([2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1]))
FS = st.one_of(
    st.none(), SMALL.map(lambda x: x / 4), st.sampled_from([NAN, -0.0, math.inf, -math.inf, 1e300, 0.1, 0.6])
)


@dataclass(frozen=True)
class Join:
    """A join, for the stage and for the twin."""

    op: StreamJoin
    terms: list[Any]
    bound: dict[str, Any]
    lateness: int


@st.composite
def joins(draw: st.DrawFn) -> Join:
    names = draw(st.lists(st.sampled_from(list(TERMS)), min_size=1, max_size=3, unique=True))
    # Great numbers are for bands: functions of the user's would add them up.
    lateness = draw(st.sampled_from([0, 0, 2]))
    kind = draw(st.sampled_from(["within", "within", "tumbling", "sliding", "last"]))
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    bound: dict[str, Any]
    options: dict[str, Any] = {"lateness": lateness}
    if kind == "within":
        reach = draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
        bound, options["within"] = {"within": reach}, reach
    elif kind == "last":
        counts = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any))
        waits = {"left": counts[0], "semi": counts[0], "anti": counts[0], "right": counts[1]}
        how = "inner" if waits.get(how, how == "full") else how
        bound, options["last_rows"] = {"last": counts}, counts
    else:
        size = draw(st.integers(1, 6))
        every = size if kind == "tumbling" else draw(st.integers(1, 7))
        bound, options["window"] = {"window": (size, every)}, ps.sliding(size, every)
    on = [TERMS[name][0] for name in names]
    layout = "handshake" if kind != "last" and draw(st.integers(0, 3)) == 0 else "auto"
    op = StreamJoin(on, how=how, suffix=None, layout=layout, **options)
    return Join(op, [TERMS[name][1] for name in names], bound, lateness)


@st.composite
def sides(draw: st.DrawFn, *, max_size: int = 14) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of both sides, in the order in which they come."""
    row = st.fixed_dictionaries(
        {"t": st.integers(-8, 12), "k": st.sampled_from(["a", "b", None]), "x": XS, "f": FS}
    )
    both = [draw(st.lists(row, max_size=max_size)) for _ in range(2)]
    lefts = [{**row, "n": place} for place, row in enumerate(both[0])]
    rights = [
        {f"r_{name}": value for name, value in {**row, "n": place}.items()}
        for place, row in enumerate(both[1])
    ]
    return lefts, [{**row, "t": row["r_t"]} for row in rights]


def batch_of(rows: list[dict[str, Any]], side: Stream) -> Batch:
    columns = pa.RecordBatch.from_pylist(
        [{name: row[name] for name in side.columns} for row in rows], schema=side.schema
    )
    number = "n" if "n" in side.columns else "r_n"
    return Batch(
        columns,
        np.array([row["t"] for row in rows], np.int64),
        (np.array([row[number] for row in rows], np.int64),),
    )


class Driver:
    """A stage fed by hand; what leaves is kept, and its state too, as an engine keeps it."""

    def __init__(self, join: Join, layout: tuple[int, int]) -> None:
        self.join, self.late = join, [0, 0]
        self.out: list[dict[str, Any]] = []
        self.accounts = Accounts()
        self.state: dict[int, bytes] = {}
        self.stage = self.build(layout)

    def build(self, layout: tuple[int, int]) -> JoinStage:
        site = StageContext("j", None, self.accounts, ManualClock())
        # Three in a part of the left stand for one that two workers share.
        sharing = 2 if layout[0] == 3 else 1
        return build_join_stage(self.join.op, LEFTS, RIGHTS, site, layout=layout, sharing=sharing)

    def take(self, outputs: Any) -> None:
        times = [np.empty(0, np.int64)]
        for port, batch in outputs:
            if port == OUT:
                assert batch.num_rows <= max(policy.SIZES.results_at_once, policy.SIZES.few_rows)
                times.append(batch.times)
                self.out += batch.rows.to_pylist()
            else:
                self.late[(LATE, LATE_RIGHT).index(port)] += batch.num_rows
        assert (np.diff(np.concatenate(times)) >= 0).all(), "what leaves is in order of time"

    def save(self, changes_only: bool) -> None:
        partly = set(self.state) if changes_only else set()
        for bucket, piece in self.stage.snapshot_changes(partly).items():
            self.state[bucket] = self.state.get(bucket, b"") + piece if bucket in partly else piece

    def restart(self, layout: tuple[int, int]) -> None:
        self.stage = self.build(layout)
        self.stage.restore(self.state)


ROUNDS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 6),
        st.sampled_from(["", "", "save", "save changes", "restart", "layout"]),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),
        st.booleans(),
    ),
    max_size=6,
)
SIZES = [
    replace(policy.SIZES),
    replace(policy.SIZES, index_rows=1, index_cost=0, index_share=1, payload_rows=5),
    replace(policy.SIZES, index_rows=1, index_cost=0, index_share=1, compared_at_once=3, pairs_at_once=2),
    replace(policy.SIZES, index_rows=4, index_cost=2, compile_after=0),
    replace(policy.SIZES, index_rows=2, index_cost=0, index_share=1, few_rows=3, results_at_once=2),
]
KINDS = ["scan", "small batches", "small steps", "compiled", "few results at once"]


@pytest.mark.parametrize("sizes", SIZES, ids=KINDS)
def test_a_join_gives_what_brute_force_gives(
    sizes: policy.SizePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "SIZES", sizes)

    @settings(deadline=None, derandomize=True, max_examples=200)
    @given(joins(), sides(), ROUNDS, st.tuples(st.integers(1, 3), st.integers(1, 3)))
    def law(join: Join, rows: Any, rounds: list[Any], layout: tuple[int, int]) -> None:
        run_and_compare(join, rows, rounds, layout)

    law()


def test_results_leave_in_the_same_order_however_few_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(deadline=None, derandomize=True, max_examples=150)
    @given(joins(), sides(), ROUNDS, st.tuples(st.integers(1, 3), st.integers(1, 3)))
    def law(join: Join, rows: Any, rounds: list[Any], layout: tuple[int, int]) -> None:
        outputs = []
        for sizes in (SIZES[0], SIZES[-1]):
            monkeypatch.setattr(policy, "SIZES", sizes)
            driver = run_and_compare(join, rows, rounds, layout)
            outputs.append((repr(driver.out), driver.accounts))
        assert outputs[0] == outputs[1]

    law()


@pytest.mark.parametrize("layout", [(1, 1), (2, 2)])
def test_a_round_of_very_many_pairs_holds_few_of_them(
    layout: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 x 400 rows, all of them pairs; in the first steps nothing is known of how many there are."""
    monkeypatch.setattr(policy, "SIZES", replace(policy.SIZES, results_at_once=1_000))
    held, emit = [0], JoinResults.emit

    def emit_and_note(results: JoinResults, leaving: RoundResults, until: int | None) -> Any:
        held.append(len(leaving))
        return emit(results, leaving, until)

    monkeypatch.setattr(JoinResults, "emit", emit_and_note)
    op = StreamJoin([ps.band("x", "r_x", 1)], within=1_000, suffix=None)
    driver = Driver(Join(op, [], {}, 0), layout)
    row = {"k": None, "x": 1, "f": None}
    lefts = [{**row, "t": place % 400, "n": place} for place in range(0, 2_800, 7)]
    rights = [{f"r_{name}": value for name, value in left.items()} | {"t": left["t"]} for left in lefts]
    batches = {LEFT: batch_of(lefts, LEFTS), RIGHT: batch_of(rights, RIGHTS)}
    driver.take(driver.stage.on_round(batches, -math.inf, 400))
    assert len(driver.out) == 160_000
    assert len({key_of(row) for row in driver.out}) == 160_000
    assert max(held) < 5_000


def run_and_compare(join: Join, rows: Any, rounds: list[Any], layout: tuple[int, int]) -> Driver:
    driver = Driver(join, layout)
    rest = [list(rows[0]), list(rows[1])]
    admitted: tuple[list[Any], list[Any]] = ([], [])
    watermark, n_late, n_outside = -math.inf, [0, 0], 0
    for n_left, n_right, step, action, other, together in [*rounds, (99, 99, 0, "", layout, True)]:
        batch_rows = [rest[0][:n_left], rest[1][:n_right]]
        rest = [rest[0][n_left:], rest[1][n_right:]]
        for side in (0, 1):
            for row in batch_rows[side]:
                verdict = judge(row, watermark, join)
                if verdict is None:
                    n_late[side] += 1
                elif verdict == []:
                    n_outside += 1
                else:
                    admitted[side].append({**row, "open": verdict})
        reached = watermark
        times = [row["t"] for side in batch_rows for row in side]
        if times:
            reached = max(watermark, max(times) - 6 + step)
        batches = {
            port: batch_of(of_side, stream_)
            for port, of_side, stream_ in ((LEFT, batch_rows[0], LEFTS), (RIGHT, batch_rows[1], RIGHTS))
        }
        if together:
            driver.take(driver.stage.on_round(batches, watermark, reached))
        else:
            driver.take(driver.stage.on_batch(LEFT, batches[LEFT], watermark))
            driver.take(driver.stage.on_batch(RIGHT, batches[RIGHT], watermark))
            driver.take(driver.stage.on_watermark(reached))
        watermark = reached
        if action.startswith("save"):
            driver.save(changes_only=action == "save changes")
        elif action == "restart":
            driver.save(changes_only=True)
            driver.restart(other)
        elif action == "layout" and join.op.layout != "handshake":
            driver.stage.change_layout(other)
    driver.take(driver.stage.drain())
    if "last" in join.bound:
        expected = join_last_rows(*admitted, join.terms, join.bound["last"], join.op.how)
    else:
        expected = join_all(*admitted, join.terms, join.bound, join.op.how)
    assert Counter(map(key_of, driver.out)) == Counter(
        (
            None if left is None else admitted[0][left]["n"],
            None if right is None or join.op.how in ("semi", "anti") else admitted[1][right]["r_n"],
            window if join.op.resolve(LEFTS, RIGHTS).has_window_columns else None,
        )
        for left, right, window in expected
    )
    assert driver.late == n_late
    assert driver.stage.n_stored == (0, 0)
    account = driver.accounts
    assert account.is_balanced
    assert (account.late, account.no_window, account.rows_out) == (sum(n_late), n_outside, len(driver.out))
    if driver.stage._predicate.keys is not None:
        assert driver.stage._predicate.keys.keys.n_live == 0
    return driver


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["n"], row.get("r_n"), row.get("window_start")


def judge(row: dict[str, Any], watermark: float, join: Join) -> list[Any] | None:
    """The windows that take a row, [] in a gap, None if it is late."""
    if "window" not in join.bound:
        return None if row["t"] + join.lateness < watermark else [None]
    size, every = join.bound["window"]
    windows = window_starts(row["t"], size, every)
    still_open = [start for start in windows if watermark < start + size + join.lateness]
    return still_open if still_open or not windows else None


def count_steps(quota: RowQuota, n_rows: int) -> int:
    times = np.arange(n_rows)
    batch = Batch(pa.record_batch({"t": times}), times, (times,))
    return len(list(quota.cut([batch], -1)))


def test_rounds_without_rows_or_with_few_cut_no_later_round_into_more_steps() -> None:
    quota = RowQuota()
    quota.note(4_096, 4_096)
    assert count_steps(quota, 8_000) == 1
    for n_rows in (0, 1, 2):
        quota.note(n_rows, n_rows)
    assert count_steps(quota, 8_000) == 1
    quota.note(10, 10 * policy.SIZES.results_at_once)
    assert count_steps(quota, 8_000) == 8_000


def test_the_twin_knows_what_nulls_and_nan_do() -> None:
    assert not holds({"f": None}, {"r_f": None}, [("equal", "f", "r_f")])
    assert holds({"f": NAN}, {"r_f": NAN}, [("equal", "f", "r_f")])
    assert not holds({"f": NAN}, {"r_f": NAN}, [("band", "f", "r_f", 1, False)])


BANDS = [name for name in TERMS if name in ("band", "strict", "floats", "mixed")]


@pytest.mark.parametrize("sizes", [SIZES[0], SIZES[1], SIZES[3]], ids=["scan", "index", "compiled"])
@pytest.mark.parametrize("as_rows", [True, False], ids=["rows", "columns"])
def test_a_few_rows_are_joined_as_many_are(
    sizes: policy.SizePolicy, as_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(join: Join, rows: Any, cuts: list[tuple[int, int, int]], n_few: int) -> Any:
        monkeypatch.setattr(
            policy, "SIZES", replace(sizes, few_rows=n_few, loop_rows=n_few, plain_pairs=n_few // 4)
        )
        driver, watermark = Driver(join, (1, 1)), -math.inf
        rest = [list(rows[0]), list(rows[1])]
        for n_left, n_right, step in [*cuts, (99, 99, 0)]:
            parts = [rest[0][:n_left], rest[1][:n_right]]
            rest = [rest[0][n_left:], rest[1][n_right:]]
            for port, part, side in ((LEFT, parts[0], LEFTS), (RIGHT, parts[1], RIGHTS)):
                batch = batch_of(part, side)
                if as_rows:
                    plain, order = plain_rows_of(batch.rows), tuple(map(tuple, batch.order))
                    batch = RowBatch(plain, batch.schema, tuple(batch.times), order)
                driver.take(driver.stage.on_batch(port, batch, watermark))
            times = [row["t"] for part in parts for row in part]
            watermark = max([watermark, *(time - 6 + step for time in times)])
            driver.take(driver.stage.on_watermark(watermark))
        driver.save(changes_only=False)
        return list(map(key_of, driver.out)), driver.late, driver.accounts, driver.state

    cuts = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6)), max_size=6)

    @settings(deadline=None, derandomize=True, max_examples=100)
    @given(st.lists(st.sampled_from(BANDS), min_size=1, max_size=2, unique=True), sides(), cuts)
    def law(names: list[str], rows: Any, cuts: list[tuple[int, int, int]]) -> None:
        op = StreamJoin([TERMS[name][0] for name in names], within=(5, 3), lateness=1, suffix=None)
        join = Join(op, [], {}, 1)
        assert run(join, rows, cuts, 64) == run(join, rows, cuts, 0)

    law()


def test_all_layouts_are_as_busy_however_skewed_an_attribute_is() -> None:
    # Parts go by the numbers of rows, so a value that all rows share is in all of them.
    join = Join(StreamJoin([TERMS["band"][0]], within=(100, 100), suffix=None), [], {}, 0)
    driver = Driver(join, (2, 4))
    rows = [{"t": time, "k": "a", "x": 7, "f": 0.0, "n": time} for time in range(80)]
    driver.take(driver.stage.on_batch(LEFT, batch_of(rows, LEFTS), -math.inf))
    assert [len(part) for part in driver.stage._cells.parts[0]] == [40, 40]
    renamed = [{f"r_{name}": value for name, value in row.items()} | {"t": row["t"]} for row in rows]
    driver.take(driver.stage.on_batch(RIGHT, batch_of(renamed, RIGHTS), -math.inf))
    assert [len(part) for part in driver.stage._cells.parts[1]] == [20, 20, 20, 20]
    assert len(driver.out) == 80 * 80


def test_what_is_stored_is_bounded_by_the_windows_however_long_the_streams_are() -> None:
    join = Join(StreamJoin([TERMS["band"][0]], within=(1000, 1000), suffix=None), [], {}, 0)
    driver = Driver(join, (1, 1))
    sizes = []
    for begin in range(0, 40_000, 500):
        rows = [
            {"t": time, "k": "a", "x": time % 4000, "f": 0.0, "n": time} for time in range(begin, begin + 500)
        ]
        driver.take(driver.stage.on_batch(LEFT, batch_of(rows, LEFTS), begin))
        driver.take(driver.stage.on_watermark(begin + 500))
        assert driver.stage.n_stored[0] <= 1000 + 1000 // EXPIRY_SHARE + 1
        sizes.append(driver.stage.nbytes)
    assert max(sizes[20:]) == max(sizes[20:50]), "memory does not grow with the stream"
