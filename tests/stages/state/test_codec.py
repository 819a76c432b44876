"""Values of a state as bytes and back: equal, of the same types, and one object where it was one."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.function import Row
from penstock.stages.state.codec import (
    NotSerializable,
    SavedStates,
    StateDecoder,
    StateEncoder,
    state_classes,
)


class Colour(Enum):
    RED = 1


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Node:
    value: Any = None
    next: Node | None = None
    colours: list[Colour] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fixed:
    pair: Pair


SCHEMA = pa.schema([("a", pa.int64()), ("at", pa.timestamp("us"))])
CLASSES = state_classes(Fixed(Pair(0, Node())))


def there_and_back(state: object) -> Any:
    return StateDecoder(CLASSES, SCHEMA).decode(StateEncoder(CLASSES).encode(state))


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5.5))])),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.just(Colour.RED),
    st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True), np.float64(-0.0)]),
)
hashable = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.tuples(inner, inner), st.frozensets(inner, max_size=2), st.builds(Pair, inner, inner)
    ),
    max_leaves=3,
)
mappings = st.dictionaries(hashable, plain, max_size=3)
states = st.recursive(
    st.one_of(
        hashable,
        mappings,
        st.sets(hashable, max_size=3),
        mappings.map(lambda held: defaultdict(list, held)),
        mappings.map(OrderedDict),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=3).map(Counter),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.lists(inner, max_size=7).map(lambda held: deque(held, maxlen=5)),
        st.builds(Node, inner),
        st.builds(Fixed, st.builds(Pair, inner, inner)),
    ),
    max_leaves=5,
)


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right and repr(left) == repr(right)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(states)
def test_a_state_comes_back_as_it_was(state: object) -> None:
    back = there_and_back(state)
    assert type(back) is type(state)
    assert back == state


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 2**200, "\ud800", 1e-320])
def test_awkward_numbers_and_texts_come_back(value: Any) -> None:
    back = there_and_back([value])[0]
    assert repr(back) == repr(value)


def test_types_that_look_alike_stay_apart() -> None:
    state = [1, 1.0, True, np.int64(1), Decimal(1), (1,), [1], {1}, frozenset({1}), date(2020, 1, 1)]
    assert all(same(a, b) for a, b in zip(there_and_back(state), state, strict=True))


def test_an_object_that_is_met_twice_stays_one_object() -> None:
    shared = [1]
    back = there_and_back({"a": shared, "b": (shared, shared)})
    back["a"].append(2)
    assert back == {"a": [1, 2], "b": ([1, 2], [1, 2])}


def test_an_object_may_hold_itself() -> None:
    node = Node("x")
    node.next = node
    back = there_and_back(node)
    assert back.next is back


def test_a_row_comes_back_with_the_columns_of_the_step() -> None:
    back = there_and_back(Row({"a": 1, "at": 0}, SCHEMA))
    assert (back.a, back.at) == (1, datetime(1970, 1, 1))


def test_what_a_defaultdict_makes_is_kept() -> None:
    back = there_and_back(defaultdict(int, {"a": 1}))
    back["b"] += 2
    assert back == {"a": 1, "b": 2}


class Unknown:
    def __repr__(self) -> str:
        return "Unknown()"


@dataclass
class Stranger:
    n: int = 0


def more() -> Node:
    node = Node()
    node.more = 3  # type: ignore[attr-defined]  # this is the mistake
    return node


def inside_itself() -> tuple[Any, ...]:
    held: list[Any] = []
    held.append((held,))
    inner: tuple[Any, ...] = held[0]
    return inner


def deep() -> list[Any]:
    state: list[Any] = []
    for _ in range(10_000):
        state = [state]
    return state


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ([Unknown()], "it holds an Unknown Unknown()"),
        (Stranger(), "it holds a Stranger, which neither the first state nor its annotations show"),
        (defaultdict(Unknown), "it holds a defaultdict of <class"),
        (more(), "it holds a Node with more, which is not a field of it"),
        (inside_itself(), "it holds a tuple that holds itself"),
        (deep(), "it is nested too deeply"),
        (
            datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
            "it holds a datetime in the zone Europe/Paris; UTC and fixed offsets can be saved",
        ),
    ],
)
def test_what_cannot_be_saved_is_named(state: object, why: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        StateEncoder(CLASSES).encode(state)
    assert str(caught.value).startswith(why)


def test_classes_are_those_of_a_new_state_and_of_annotations() -> None:
    assert set(CLASSES) == {"Fixed", "Pair", "Node", "Colour"}
    assert state_classes({}, dict[str, list[Stranger | None]]) == {"Stranger": Stranger}


def test_of_two_classes_with_one_name_neither_is_known() -> None:
    other = type("Stranger", (Stranger,), {})
    other.__qualname__ = "Stranger"
    assert state_classes([], Stranger, dataclass(other)) == {}


def test_bytes_cannot_name_a_class_that_the_step_does_not_show() -> None:
    saved = StateEncoder(state_classes(Stranger())).encode(Stranger(3))
    with pytest.raises(NotSerializable, match="no longer shows that class"):
        StateDecoder(CLASSES, SCHEMA).decode(saved)


PIECES = st.lists(st.dictionaries(st.integers(0, 9), st.binary(max_size=3)), min_size=1, max_size=5)
SLOTS = st.lists(st.integers(0, 12), max_size=8)


@settings(deadline=None)
@given(PIECES, st.lists(st.tuples(st.sampled_from(["take", "pop", "select"]), SLOTS), max_size=5))
def test_saved_states_are_given_out_as_by_a_dict(
    pieces: list[dict[int, bytes]], calls: list[tuple[str, list[int]]]
) -> None:
    saved, known = SavedStates(), dict[int, bytes]()
    for piece in pieces:
        # A key without a state has a slot, too: what was known of it is gone.
        slots = np.array([*piece, 11], np.int64)
        places = pa.array(range(len(piece)), pa.int64())
        states = pa.array(list(piece.values()), pa.binary())
        saved.put(slots, pa.record_batch({"place": places, "state": states}))
        known |= piece
    for call, slots_ in calls:
        wanted = {slot: known[slot] for slot in slots_ if slot in known}
        if call == "take":
            assert dict(saved.take(np.array(slots_, np.int64))) == wanted
        elif call == "pop":
            assert {slot: state for slot in slots_ if (state := saved.pop(slot)) is not None} == wanted
        else:
            distinct = list(dict.fromkeys(slots_))
            batch = saved.select(np.array(distinct, np.int64))
            places_ = batch.column("place").to_pylist()
            assert {
                distinct[place]: state
                for place, state in zip(places_, batch.column("state").to_pylist(), strict=True)
            } == wanted
            continue
        known = {slot: state for slot, state in known.items() if slot not in wanted}
        assert bool(saved) == bool(known)
