"""Saved state of window steps: taken up at any point, by any number of replicas, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.errors import CheckpointError
from penstock.operators import aggregates as spec
from penstock.operators.window import count_window, sliding, tumbling
from penstock.operators.windows import KeyedWindows
from penstock.plan.accounts import Accounts
from penstock.stages.batch import Batch
from penstock.stages.key_buckets import KeyBuckets
from penstock.stages.site import Site
from penstock.stages.window_stage import WindowStage
from penstock.testing.compare import difference
from penstock.timing.watermark import SourceWatermark
from tests.stages.judge import STEP, Case, Driven, assert_same, by_reference, case, stage_batch
from tests.stages.windowed import SKETCHES, cases, several_counts

LAW = settings(deadline=None, derandomize=True, max_examples=100)


def restarted(case: Case, at: set[int]) -> Driven:
    """A run that saves after every batch, and after some is taken up by a new stage."""
    driven, saved = Driven(case), dict[int, bytes]()
    for number, given_batch in enumerate(case.batches):
        driven.push(given_batch)
        saved |= driven.stage.snapshot()
        if number in at:
            driven.stage = driven.new_stage()
            driven.stage.restore(saved)
    return driven


@LAW
@given(cases(), st.sets(st.integers(0, 6)))
def test_saving_and_taking_up_state_between_any_batches_changes_nothing(case: Case, at: set[int]) -> None:
    assert_same(restarted(case, at).end(), by_reference(case), approximate=tuple(SKETCHES))


@LAW
@given(cases(windows=several_counts), st.sets(st.integers(0, 6)))
def test_rows_that_count_windows_have_not_settled_are_saved_too(case: Case, at: set[int]) -> None:
    assert_same(restarted(case, at).end(), by_reference(case), approximate=tuple(SKETCHES))


class Replicas:
    """Several stages, each with the keys of some buckets, as after a shuffle by key."""

    def __init__(self, case: Case, n: int, accounts: Accounts, saved: dict[int, bytes]) -> None:
        self.case, self.n = case, n
        sites = [Site(STEP, None, accounts, ManualClock()) for _ in range(n)]
        self.stages = [WindowStage(case.op, case.up, site, numbered=case.numbered) for site in sites]
        for number, stage in enumerate(self.stages):
            stage.restore({bucket: data for bucket, data in saved.items() if bucket % n == number})
        self._buckets = KeyBuckets([case.schema.field(name).type for name in case.key])

    def push(self, rows: Batch, watermark: float) -> list[tuple[str, Batch]]:
        keys = [rows.rows.column(name) for name in self.case.key]
        homes = self._buckets.of(keys, rows.num_rows) % self.n
        parts = [(stage, rows.where(homes == number)) for number, stage in enumerate(self.stages)]
        return [out for stage, part in parts for out in stage.on_batch(part, watermark)]


@LAW
@given(cases(), st.lists(st.integers(1, 4), min_size=7, max_size=7))
def test_state_can_be_taken_up_by_another_number_of_replicas(case: Case, degrees: list[int]) -> None:
    accounts, saved, found = Accounts(), dict[int, bytes](), list[tuple[str, Batch]]()
    watermark = SourceWatermark(case.delay)
    for given_batch, degree in zip(case.batches, degrees, strict=False):
        replicas = Replicas(case, degree, accounts, saved)
        rows = stage_batch(given_batch)
        found += replicas.push(rows, watermark.now)
        watermark.saw(int(rows.times.max()) if rows.num_rows else None)
        for stage in replicas.stages:
            found += stage.on_watermark(watermark.now)
            saved |= stage.snapshot()
    last = Replicas(case, degrees[-1], accounts, saved)
    found += [out for stage in last.stages for out in stage.drain()]
    judged = by_reference(case)
    assert accounts == judged.accounts
    for port, table in judged.tables.items():
        parts = [batch.rows for name, batch in found if name == port]
        ours = pa.Table.from_batches(parts, schema=table.schema)
        assert difference(table, ours, approximate=tuple(SKETCHES)) is None


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
    site = Site(step, None, Accounts(), ManualClock())
    return WindowStage(op, Case(op, [], key=key).up, site)


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"windows": tumbling(20)}, "window"),
        ({"windows": sliding(10, 5)}, "window"),
        ({"windows": count_window(10)}, "window"),
        ({"lateness": 5}, "window"),
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


@given(st.data())
@settings(deadline=None, derandomize=True)
def test_damaged_state_is_refused(data: st.DataObject) -> None:
    bucket, whole = saved_one()
    place = data.draw(st.integers(10, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    with pytest.raises(CheckpointError) as refused:
        other().restore({bucket: whole[:place] + flipped + whole[place + 1 :]})
    assert refused.value.fact == f'saved state of step "{STEP}" is damaged: its checksum does not fit'


def test_newer_state_is_refused() -> None:
    bucket, whole = saved_one()
    newer = whole[:8] + (2).to_bytes(2, "little") + whole[10:-8]
    with pytest.raises(CheckpointError) as refused:
        other().restore({bucket: newer + xxhash.xxh3_64_digest(newer)})
    assert refused.value.fact == "saved state has format version 2, and this Penstock reads up to 1"


def test_a_refused_restore_leaves_the_stage_as_it_was() -> None:
    driven = Driven(case(COUNTED, ROWS, delay=0))
    driven.push(driven.case.batches[0])
    with pytest.raises(CheckpointError):
        driven.stage.restore({0: b"no"})
    assert [rows.num_rows for _, rows in driven.stage.drain()] == [2]
