"""Saved state of window steps: taken up at any point, by any number of replicas, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import CheckpointError
from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.stages.keys.slots import KeyBuckets
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.testing.assertions import difference
from penstock.timing.windows import SourceWatermark, count_window, session, sliding, tumbling
from tests.support.window_cases import SKETCHES, cases, early_cases, several_counts, some_batches, ticks
from tests.support.windows import (
    STEP,
    Case,
    Driven,
    assert_same,
    by_reference,
    case,
    shown_by_reference,
    stage_batch,
)

LAW = settings(deadline=None, derandomize=True, max_examples=50)


def run_restarts(case: Case, at: set[int], ticks: Sequence[int] = (0,) * 7) -> Driven:
    """A run that saves after every batch, and after some is taken up by a new stage."""
    driven, saved = Driven(case), dict[int, bytes]()
    for number, given_batch in enumerate(case.batches):
        driven.clock.advance(ticks[number])
        driven.push(given_batch)
        saved |= driven.stage.snapshot()
        if number in at:
            fired_at, driven.stage = driven.stage.fired_at, driven.new_stage()
            driven.stage.restore(saved)
            driven.stage.fired_at = fired_at
    return driven


@pytest.mark.slow
@LAW
@given(cases(), st.sets(st.integers(0, 6)))
def test_saving_and_taking_up_state_between_any_batches_changes_nothing(case: Case, at: set[int]) -> None:
    assert_same(run_restarts(case, at).end(), by_reference(case), approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(cases(windows=several_counts), st.sets(st.integers(0, 6)))
def test_rows_that_count_windows_have_not_settled_are_saved_too(case: Case, at: set[int]) -> None:
    assert_same(run_restarts(case, at).end(), by_reference(case), approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(early_cases(), some_batches, ticks)
def test_what_has_been_shown_early_is_not_shown_again_by_who_takes_up_the_state(
    case: Case, at: set[int], ticks: list[int]
) -> None:
    result = run_restarts(case, at, ticks).end()
    assert_same(result, shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


class Replicas:
    """Several stages, each with the keys of some buckets, as after a shuffle by key."""

    def __init__(
        self, case: Case, n: int, accounts: Accounts, saved: dict[int, bytes], clock: ManualClock
    ) -> None:
        self.case, self.n = case, n
        sites = [StageContext(STEP, None, accounts, clock) for _ in range(n)]
        self.stages = [
            WindowStage(case.op, case.up, site, totally_ordered=case.has_numbers) for site in sites
        ]
        for number, stage in enumerate(self.stages):
            stage.restore({bucket: data for bucket, data in saved.items() if bucket % n == number})
        self._buckets = KeyBuckets([case.schema.field(name).type for name in case.key])

    def push(self, rows: Batch, watermark: float) -> list[tuple[str, Batch]]:
        keys = [rows.rows.column(name) for name in self.case.key]
        homes = self._buckets.of(keys, rows.num_rows) % self.n
        parts = [(stage, rows.where(homes == number)) for number, stage in enumerate(self.stages)]
        return [out for stage, part in parts for out in stage.on_batch(part, watermark)]


@pytest.mark.slow
@LAW
@given(early_cases(), st.lists(st.integers(1, 4), min_size=7, max_size=7), ticks)
def test_state_can_be_taken_up_by_another_number_of_replicas(
    case: Case, degrees: list[int], ticks: list[int]
) -> None:
    clock, fired_at = ManualClock(), 0
    accounts, saved, output = Accounts(), dict[int, bytes](), list[tuple[str, Batch]]()
    watermark = SourceWatermark(case.delay)
    for given_batch, degree, tick in zip(case.batches, degrees, ticks, strict=False):
        replicas = Replicas(case, degree, accounts, saved, clock)
        clock.advance(tick)
        for stage in replicas.stages:
            stage.fired_at = fired_at
        rows = stage_batch(given_batch)
        output += replicas.push(rows, watermark.now)
        watermark.observe(int(rows.times.max()) if rows.num_rows else None)
        for stage in replicas.stages:
            output += stage.on_watermark(watermark.now)
            saved |= stage.snapshot()
            fired_at = stage.fired_at
    last = Replicas(case, degrees[-1], accounts, saved, clock)
    output += [out for stage in last.stages for out in stage.drain()]
    judged = shown_by_reference(case, ticks)
    assert accounts == judged.accounts
    for port, table in judged.tables.items():
        parts = [batch.rows for name, batch in output if name == port]
        ours = pa.Table.from_batches(parts, schema=table.schema)
        assert difference(table, ours, approximate=tuple(SKETCHES)) is None


@pytest.mark.slow
@LAW
@given(early_cases(), some_batches, ticks)
def test_what_has_been_shown_early_is_known_to_who_is_handed_the_state(
    case: Case, at: set[int], ticks: list[int]
) -> None:
    driven = Driven(case)
    for number, given_batch in enumerate(case.batches):
        driven.clock.advance(ticks[number])
        driven.push(given_batch)
        if number in at:
            held = driven.stage.export_buckets()
            driven.stage.replace_buckets(held, removed=(), added=list(held))
    assert_same(driven.end(), shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


COUNTED = KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()})
ROWS = [[("a", 1, 1), ("b", 2, 2)], [("a", 3, 3)], [("c", 25, 4)]]


def test_only_what_changed_since_the_last_snapshot_is_saved() -> None:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    first = driven.stage.snapshot()
    assert len(first) == 2
    assert driven.stage.snapshot() == {}
    driven.push(driven.case.batches[1])
    assert len(driven.stage.snapshot()) == 1


@pytest.mark.parametrize(
    ("windows", "aggregates"),
    [
        (tumbling(10), {"n": spec.count()}),
        (sliding(10, 5), {"all": spec.collect("v")}),
        (sliding(10, 5), {"d": spec.approx_distinct("v")}),
        (session(10), {"n": spec.count()}),
        (count_window(10), {"n": spec.count()}),
    ],
    ids=["registers", "rows", "sketches", "sessions", "counts"],
)
def test_a_bucket_is_saved_once_more_when_something_of_it_has_been_shown(
    windows: Any, aggregates: dict[str, Any]
) -> None:
    op = KeyedWindows(windows=windows, aggregates=aggregates, early="1 us")
    driven = Driven(case(op, [[("a", 1, 1), ("b", 2, 2)], [("c", 4, 4)], []], delay=0))
    for given_batch in driven.case.batches[:2]:  # which are not late for each other, as nothing has left
        driven.push(given_batch)
    assert len(driven.stage.snapshot()) == 3
    driven.clock.advance(1)
    driven.push(driven.case.batches[2])
    rows = [row["k"] for batch in driven.out["out"] for row in batch.rows.to_pylist()]
    assert set(rows) >= {"a", "b"}
    assert len(driven.stage.snapshot()) == len(set(rows))
    driven.clock.advance(1)
    driven.push(driven.case.batches[2])
    assert driven.stage.snapshot() == {}  # it was time, but nothing had changed


def with_early(op: KeyedWindows) -> KeyedWindows:
    return replace(op, early="1 us")


def test_a_bucket_whose_keys_are_gone_is_saved_once_more() -> None:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    old = set(driven.stage.snapshot())
    driven.push(driven.case.batches[2])  # lets both windows leave
    new = driven.stage.snapshot()
    assert old < set(new)
    fresh = driven.new_stage()
    fresh.restore(new)
    assert [rows.rows.column("k").to_pylist() for _, rows in fresh.drain()] == [["c"]]


def test_a_stage_that_is_restored_forgets_what_it_had() -> None:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    saved = driven.stage.snapshot()
    driven.push(driven.case.batches[1])
    driven.stage.restore(saved)
    assert sorted(rows.rows.column("n").to_pylist() for _, rows in driven.stage.drain()) == [[1, 1]]


def saved_one() -> tuple[int, bytes]:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    return next(iter(driven.stage.snapshot().items()))


def other(step: str = STEP, key: tuple[str, ...] = ("k",), **changes: Any) -> WindowStage:
    op = KeyedWindows(**{"windows": tumbling(10), "aggregates": {"n": spec.count()}, **changes})
    site = StageContext(step, None, Accounts(), ManualClock())
    return WindowStage(op, Case(op, [], key=key).up, site)


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"windows": tumbling(20)}, "window"),
        ({"windows": sliding(10, 5)}, "window"),
        ({"windows": count_window(10)}, "window"),
        ({"lateness": 5}, "lateness"),
        ({"aggregates": {"n": spec.count("v")}}, "aggregates"),
        ({"aggregates": {"m": spec.count()}}, "aggregates"),
        ({"aggregates": {"n": spec.count(), "s": spec.sum("v")}}, "aggregates"),
        ({"key": ("v",)}, "key"),
        ({"key": ()}, "key"),
    ],
)
def test_state_of_a_step_that_has_changed_is_refused(changes: dict[str, Any], topic: str) -> None:
    bucket, data = saved_one()
    with pytest.raises(CheckpointError) as refused:
        other(**changes).restore({bucket: data})
    assert refused.value.fact == (
        f'step "{STEP}" is not the step that the state was saved for: its {topic} differs'
    )
    assert refused.value.detail is not None
    assert refused.value.detail.startswith("saved: ")


def test_two_aggregates_that_differ_in_an_option_only_do_not_share_state() -> None:
    one = other(aggregates={"s": spec.std("v")})
    list(one.on_batch(stage_batch(case(COUNTED, ROWS).batches[0]), 0))
    with pytest.raises(CheckpointError, match="its aggregates differs"):
        other(aggregates={"s": spec.std("v", population=True)}).restore(one.snapshot())


def test_state_of_another_step_is_refused() -> None:
    bucket, data = saved_one()
    with pytest.raises(CheckpointError) as refused:
        other(step="sums").restore({bucket: data})
    assert refused.value.fact == f'saved state of step "{STEP}" was given to step "sums"'


@pytest.mark.parametrize("data", [b"", b"PENSTOCK", b"PAR1" * 20])
def test_what_is_not_saved_state_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError) as refused:
        other().restore({0: data})
    assert refused.value.fact == f'what was given to step "{STEP}" is not saved state of Penstock'


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, derandomize=True)
def test_damaged_state_is_refused(data: st.DataObject) -> None:
    bucket, whole = saved_one()
    place = data.draw(st.integers(10, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    with pytest.raises(CheckpointError) as refused:
        other().restore({bucket: whole[:place] + flipped + whole[place + 1 :]})
    assert refused.value.fact == f'saved state of step "{STEP}" is damaged: its checksum does not fit'


@pytest.mark.parametrize(
    ("version", "hint"), [(2, "start with an empty checkpoint folder"), (5, "a newer one")]
)
def test_state_of_another_version_is_refused_by_its_version(version: int, hint: str) -> None:
    bucket, whole = saved_one()
    other_version = whole[:8] + version.to_bytes(2, "little") + whole[10:-8]
    with pytest.raises(CheckpointError) as refused:
        other().restore({bucket: other_version + xxhash.xxh3_64_digest(other_version)})
    assert (
        refused.value.fact == f"saved state has format version {version}, and this Penstock reads version 4"
    )
    assert refused.value.hint == f"run it with the Penstock that wrote it, or {hint}"


def test_a_refused_restore_leaves_the_stage_as_it_was() -> None:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    with pytest.raises(CheckpointError):
        driven.stage.restore({0: b"no"})
    assert [rows.num_rows for _, rows in driven.stage.drain()] == [2]
