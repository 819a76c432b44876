"""Saved windows brought from one form into the other: nothing is lost, and what has no other form says so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import CheckpointError
from penstock.operators import aggregates as spec
from penstock.operators.stream import Stream
from penstock.operators.window_specs import sliding
from penstock.operators.windows import KeyedWindows
from penstock.stages.patterns.forms import Pieces, convert_state, form_of
from penstock.stages.patterns.partials import PartialStage
from penstock.stages.patterns.pattern import decompose
from penstock.stages.rows.batch import Batch
from penstock.stages.snapshot import AS_PARTIALS, BY_KEY, BY_PARTITION
from penstock.stages.stage import Site
from penstock.timing.column import TimeType

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64())])
UP = Stream(SCHEMA, TimeType(pa.int64(), "us"), ("k",))
OP = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count(), "t": spec.collect("t")})
COUNTED = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count()})


def site() -> Site:
    return Site("w", None, Accounts(), ManualClock())


def saved(pattern: str, op: KeyedWindows = OP) -> Pieces:
    """What three replicas of a pattern save of three keys."""
    made = decompose(op, UP, 3, site, pattern=pattern)
    times = np.arange(30, dtype=np.int64)
    rows = pa.RecordBatch.from_arrays([pa.array(list("abc") * 10), pa.array(times)], schema=SCHEMA)
    for number, share in made.partitioner(Batch(rows, times)):
        replica = made.replicas[number]
        assert list(replica.on_batch(share, float("-inf"))) == []
        if isinstance(replica, PartialStage):
            for _, parts in replica.flush():
                list(made.final_stages[0].on_batch(parts, float("-inf")))
    stages, _ = made.stateful_stages
    return {bucket: piece for stage in stages for bucket, piece in stage.snapshot().items()}


def test_pieces_by_key_are_pieces_by_window_and_back() -> None:
    by_key, dealt = saved("keyed"), saved("parallel")
    assert {form_of(piece, "w") for piece in by_key.values()} == {BY_KEY}
    assert {form_of(piece, "w") for piece in dealt.values()} == {BY_PARTITION}
    assert len(by_key) == 3
    assert len(dealt) > 3
    assert set(convert_state(by_key, BY_PARTITION, OP, UP, site())) == set(dealt)
    assert set(convert_state(dealt, BY_KEY, OP, UP, site())) == set(by_key)


def results(pieces: Pieces) -> list[tuple[str, int, int, list[int]]]:
    """What a keyed stage makes of pieces by key, at the end."""
    (stage,) = decompose(OP, UP, 1, site).replicas
    stage.restore(pieces)
    found = [row for _, out in stage.drain() for row in out.rows.to_pylist()]
    return [(row["k"], row["window_start"], row["n"], row["t"]) for row in found]


def test_there_and_back_is_as_if_nothing_had_been_done() -> None:
    by_key = saved("keyed")
    again = convert_state(convert_state(by_key, BY_PARTITION, OP, UP, site()), BY_KEY, OP, UP, site())
    assert results(again) == results(by_key)
    assert results(convert_state(saved("parallel"), BY_KEY, OP, UP, site())) == results(by_key)
    assert len(results(by_key)) == 3 * 7


def test_what_has_the_form_already_stays_as_it_is() -> None:
    by_key = saved("keyed")
    assert convert_state(by_key, BY_KEY, OP, UP, site()) is by_key
    assert convert_state({}, BY_PARTITION, OP, UP, site()) == {}


@pytest.mark.parametrize(
    ("pattern", "form", "fact", "hint"),
    [
        (
            "map_reduce",
            BY_KEY,
            'step "w" was saved as partial windows by key, and is now to be kept as windows by key',
            'say pattern="map_reduce" and run it with engine="local", as it was saved;'
            " or start with an empty checkpoint folder",
        ),
        (
            "parallel",
            AS_PARTIALS,
            'step "w" was saved as windows by virtual partition, and is now to be kept as '
            "partial windows by key",
            'leave pattern="map_reduce" out, as it was saved: pattern="auto" takes it up;'
            " or start with an empty checkpoint folder",
        ),
    ],
)
def test_whole_windows_have_no_other_form_and_the_error_says_what_to_do(
    pattern: str, form: str, fact: str, hint: str
) -> None:
    with pytest.raises(CheckpointError) as refused:
        convert_state(saved(pattern, COUNTED), form, COUNTED, UP, site())
    assert (refused.value.fact, refused.value.hint) == (fact, hint)
