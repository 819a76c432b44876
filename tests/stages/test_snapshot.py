"""State that changes hands between replicas: nothing is lost, doubled, or forgotten by the next snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.rows import Accumulate
from penstock.stages.snapshot import BucketedStage, decode_bucket
from tests.support.stage_steps import Case, Driven, StageResult, by_reference, case, cases


def add_value(row: Any, total: int) -> int:
    """The values so far."""
    return int(total + row.v)


TOTALS = Accumulate(add_value, 0, {"total": "int64"}, on_error="skip")


def stateful_stages(driven: Driven) -> list[BucketedStage]:
    """The stages, which all keep state by bucket."""
    return [stage for stage in driven.stages if isinstance(stage, BucketedStage)]


def hand_over(driven: Driven, degree: int) -> None:
    """Give all state to so many new replicas, or to those that there are."""
    held: dict[int, Any] = {}
    for stage in stateful_stages(driven):
        held |= stage.export_buckets()
    driven.resize(degree)
    for home, stage in enumerate(stateful_stages(driven)):
        own = [bucket for bucket in range(256) if bucket % degree == home]
        stage.replace_buckets({b: held[b] for b in own if b in held}, removed=(), added=own)


def run_moves(tried: Case, degrees: list[int]) -> StageResult:
    """A run whose state changes hands after every batch; 0 leaves it where it is."""
    driven = Driven(tried)
    for number, batch in enumerate(tried.batches):
        driven.push(batch)
        if degree := degrees[number % len(degrees)]:
            hand_over(driven, degree)
    return driven.end()


@pytest.mark.slow
@settings(deadline=None)
@given(st.data(), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_whoever_has_the_state_the_answer_is_that_of_the_reference(
    data: st.DataObject, degrees: list[int]
) -> None:
    tried = data.draw(cases(TOTALS, key=("k",)))
    ours, judged = run_moves(tried, degrees), by_reference(tried)
    assert (ours.rows, ours.accounts) == (judged.rows, judged.accounts)


def two_keys() -> tuple[Driven, BucketedStage]:
    """One replica with the state of two keys."""
    driven = Driven(case(TOTALS, [("a", 1, 1), ("b", 2, 2)], [("a", 9, 3)], key=("k",)))
    driven.push(driven.case.batches[0])
    (stage,) = stateful_stages(driven)
    return driven, stage


def test_before_anything_is_saved_the_first_snapshot_still_has_everything() -> None:
    _, stage = two_keys()
    held = stage.export_buckets()
    first, *_ = sorted(held)
    stage.replace_buckets({first: held[first]}, removed=set(held) - {first}, added=())
    assert set(stage.snapshot()) == {first}


def test_what_came_is_saved_next_and_what_went_is_not_even_if_it_had_changed() -> None:
    driven, stage = two_keys()
    stage.snapshot()
    driven.push(driven.case.batches[1])  # both keys change
    held = stage.export_buckets()
    old_bucket, gone = sorted(held)
    new_bucket = next(bucket for bucket in range(256) if bucket not in held)
    stage.replace_buckets({old_bucket: held[old_bucket]}, removed=[gone], added=[new_bucket])
    assert set(stage.snapshot()) == {
        old_bucket,
        new_bucket,
    }  # nothing is left of what came: that is saved too
    assert stage.snapshot() == {}


def test_of_a_bucket_that_came_everything_is_saved_also_where_changes_would_do() -> None:
    driven, stage = two_keys()
    stage.snapshot()
    driven.push(driven.case.batches[1])  # both keys change, and are not saved
    held = stage.export_buckets()
    (receiver,) = stateful_stages(Driven(driven.case))
    receiver.restore({})
    receiver.replace_buckets(held, removed=(), added=list(held))
    saved, whole = receiver.snapshot_changes(list(held)), stage.snapshot()
    step, fingerprint = stage.site.step, stage.fingerprint
    assert {bucket: decode_bucket(piece, step, fingerprint) for bucket, piece in saved.items()} == {
        bucket: decode_bucket(piece, step, fingerprint) for bucket, piece in whole.items()
    }
    assert receiver.snapshot_changes(list(held)) == {}
