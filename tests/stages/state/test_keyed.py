"""Steps with a state per key, against the reference engine: also saved, taken up, and spread anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import CheckpointError
from penstock.operators.op import Op, Stream
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map
from penstock.stages.build import build_stage
from penstock.stages.rows.batch import RowBatch
from penstock.stages.stage import Stage, StageContext
from tests.support.stage_steps import Case, Driven, StageResult, agree, by_reference, by_stage, case, cases

LAW = settings(deadline=None, max_examples=30)
POLICIES = st.sampled_from(["fail", "skip", "dead_letter"])
KEYS = st.sampled_from([("k",), ("x",), ("k", "v"), ("word",)])
PAIR = {"k": "string", "w": "int64"}


@dataclass
class Seen:
    n: int = 0
    last: Any = None


class Total(NamedTuple):
    n: int
    words: str


def number_row(row: Any, state: Seen) -> dict[str, Any]:
    state.n += 1
    before, state.last = state.last, row
    if row.v == 3:
        raise ValueError("three")
    return {"k": None if before is None else before.word, "w": state.n}


def first_of_word(row: Any, state: set[Any]) -> bool:
    new = row.word not in state
    state.add(row.word)
    return new and row.v / 1 is not None


def so_far(row: Any, state: Counter[Any]) -> Iterable[dict[str, Any]]:
    state[row.word] += 1
    for word, n in state.items():
        yield {"k": word, "w": n // (row.v - 1)}


def add_value(row: Any, state: int) -> int:
    return int(state + row.v)


def count_words(row: Any, state: Total) -> Total:
    return Total(state.n + 1, state.words + (row.word or "-"))


STEPS: Mapping[str, Callable[..., Op]] = {
    "map": lambda **o: Map(number_row, PAIR, Seen, **o),
    "filter": lambda **o: Filter(first_of_word, set, **o),
    "flat_map": lambda **o: FlatMap(so_far, PAIR, Counter, **o),
    "accumulate": lambda **o: Accumulate(add_value, 0, {"total": "int64"}, **o),
    "accumulate rows": lambda **o: Accumulate(count_words, Total(0, ""), **o),
}
steps = pytest.mark.parametrize("name", STEPS)


@steps
@LAW
@given(st.data(), POLICIES, KEYS)
def test_state_sees_what_it_sees_in_the_reference_engine(
    name: str, data: st.DataObject, policy: str, key: tuple[str, ...]
) -> None:
    agree(data.draw(cases(STEPS[name](on_error=policy), key=key)))


def run_restarts(case: Case, degrees: list[int]) -> StageResult:
    """A run that saves after every batch, and is taken up by so many replicas; 0 goes on without."""
    driven, saved = Driven(case), dict[int, bytes]()
    for number, batch in enumerate(case.batches):
        driven.push(batch)
        for stage in driven.stages:
            saved |= stage.snapshot()
        degree = degrees[number % len(degrees)]
        if degree:
            driven.resize(degree)
            for home, stage in enumerate(driven.stages):
                stage.restore({bucket: data for bucket, data in saved.items() if bucket % degree == home})
    return driven.end()


@pytest.mark.slow
@steps
@LAW
@given(st.data(), KEYS, st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_saving_and_taking_up_state_by_any_number_of_replicas_changes_nothing(
    name: str, data: st.DataObject, key: tuple[str, ...], degrees: list[int]
) -> None:
    tried = data.draw(cases(STEPS[name](on_error="dead_letter"), key=key))
    ours, judged = run_restarts(tried, degrees), by_reference(tried)
    assert ours.rows == judged.rows
    assert ours.accounts == judged.accounts


def rows(*times: int) -> list[tuple[Any, ...]]:
    return [("a", time, time) for time in times]


TOTALS = Accumulate(add_value, 0, {"total": "int64"})


def test_rows_wait_until_the_watermark_has_passed_them_and_are_late_behind_it() -> None:
    #  delay 2: W is 3 after 5, so 5 waits for 8; then W is 6 and 4 is late
    driven = Driven(case(TOTALS, rows(2, 5), rows(8), rows(4, 7), key=("k",), delay=2))
    totals = []
    for batch_ in driven.case.batches:
        driven.push(batch_)
        totals.append(sum(batch.num_rows for batch in driven.out["out"]))
    assert totals == [1, 2, 2]
    assert driven.accounts.late == 1
    assert driven.end().rows["out"] == sorted(by_reference(driven.case).rows["out"])


def test_only_buckets_that_changed_are_saved_again() -> None:
    driven = Driven(case(TOTALS, [("a", 1, 1), ("b", 2, 2)], [("a", 9, 3)], key=("k",)))
    (stage,) = driven.stages
    driven.push(driven.case.batches[0])
    assert len(stage.snapshot()) == 2
    assert stage.snapshot() == {}
    driven.push(driven.case.batches[1])  # b's row at 2 is handled now, a's at 9 waits
    assert len(stage.snapshot()) == 2
    assert stage.snapshot() == {}


def test_a_state_that_cannot_be_saved_is_an_error_only_when_a_snapshot_is_asked_for() -> None:
    def count_row(row: Any, state: list[Any]) -> dict[str, Any]:
        state.append(iter([]))
        return {"k": row.k, "w": len(state)}

    driven = Driven(case(Map(count_row, PAIR, list), rows(1), rows(2), key=("k",)))
    for batch in driven.case.batches:
        driven.push(batch)
    with pytest.raises(CheckpointError) as caught:
        driven.stages[0].snapshot()
    assert caught.value.fact.startswith(
        f"the state that {count_row.__qualname__} keeps for k='a' cannot be saved: it holds a list_iterator"
    )
    assert caught.value.step == "map-1"
    assert caught.value.where is not None
    assert caught.value.hint == "keep such values in the state that list begins, or run without checkpoint="
    assert len(driven.end().rows["out"]) == 2


def saved_by(op: Op, key: tuple[str, ...] = ("k",)) -> dict[int, bytes]:
    driven = Driven(case(op, rows(1), rows(2), key=key))
    for batch in driven.case.batches:
        driven.push(batch)
    return dict(driven.stages[0].snapshot())


def test_state_of_another_function_is_refused_by_name() -> None:
    def other(row: Any, state: int) -> int:
        return state

    step = Driven(case(Accumulate(other, 0, {"total": "int64"}), key=("k",)))
    with pytest.raises(CheckpointError, match="its function differs") as caught:
        step.stages[0].restore(saved_by(TOTALS))
    assert caught.value.detail == f"saved: add_value; now: {other.__qualname__}"


def test_state_of_another_key_is_refused() -> None:
    step = Driven(case(TOTALS, key=("word",)))
    with pytest.raises(CheckpointError, match="its key differs"):
        step.stages[0].restore(saved_by(TOTALS))


def test_state_whose_class_has_other_fields_now_is_refused() -> None:
    saved = saved_by(Map(number_row, PAIR, Seen))

    @dataclass
    class ChangedState:
        n: int = 0

    ChangedState.__qualname__ = "Seen"
    step = Driven(case(Map(number_row, PAIR, ChangedState), key=("k",)))
    with pytest.raises(CheckpointError) as caught:
        step.stages[0].restore(saved)
    assert (
        caught.value.fact == 'a saved state of step "map-1" cannot be taken up: '
        "Seen was saved with n, last, and now has n"
    )


def test_a_factory_that_fails_fails_the_row() -> None:
    def broken() -> int:
        raise ValueError("no state today")

    agree(case(Map(number_row, PAIR, broken, on_error="dead_letter"), rows(1, 2), key=("k",)))


def test_without_time_rows_are_handled_as_they_come() -> None:
    tried = case(TOTALS, rows(5, 1), rows(3), key=("k",), timed=False)
    driven = Driven(tried)
    driven.push(tried.batches[0])
    assert sum(batch.num_rows for batch in driven.out["out"]) == 2
    agree(tried)
    assert "late" not in by_stage(tried).rows


def test_rows_wait_for_the_watermark_beside_their_keys() -> None:
    driven = Driven(case(TOTALS, rows(1, 5), [("b", 7, 1)], key=("k",), delay=3))
    for batch_ in driven.case.batches:
        driven.push(batch_)
    stage: Any = driven.stages[0]
    assert stage.keys.n_live == 2
    assert sum(batch.num_rows for batch, _ in stage._waiting) == 2
    assert "once the watermark has passed them" in stage.explain()[0]


def test_plain_rows_go_on_from_a_state_that_was_restored() -> None:
    up = Stream(pa.schema([("k", pa.int64()), ("v", pa.int64())]), None, ("k",))

    def feed(stage: Stage) -> list[Any]:
        rows = RowBatch([{"k": 1, "v": 2}, {"k": 1, "v": 3}], up.schema, (0, 0), ((0, 1),))
        return [row for _, batch in stage.on_batch(rows, 0) for row in batch.rows.to_pylist()]

    first, again = (
        build_stage(TOTALS, up, StageContext("totals", None, Accounts(), ManualClock())) for _ in range(2)
    )
    assert feed(first) == [{"k": 1, "total": 2}, {"k": 1, "total": 5}]
    again.restore(first.snapshot())
    assert feed(again) == [{"k": 1, "total": 7}, {"k": 1, "total": 10}]


def test_a_float_key_leaves_as_the_key_that_it_equals() -> None:
    up = Stream(pa.schema([("k", pa.float64()), ("v", pa.int64())]), None, ("k",))
    rows: list[dict[str, object]] = [{"k": -0.0, "v": 2}, {"k": 0.0, "v": 3}, {"k": None, "v": 4}]
    stage = build_stage(TOTALS, up, StageContext("totals", None, Accounts(), ManualClock()))
    ((_, out),) = stage.on_batch(RowBatch(rows, up.schema, (0, 0, 0), ((0, 1, 2),)), 0)
    assert str(out.rows.to_pylist()) == str(
        [{"k": k, "total": t} for k, t in ((0.0, 2), (0.0, 5), (None, 4))]
    )
