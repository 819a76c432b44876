"""The state of a key as bytes, and back, without pickle: saved state must never be able to run code.

What can be saved: None, bool, int, float, str, bytes, date, datetime, timedelta, Decimal, NumPy's numbers;
list, tuple, dict, set, frozenset, deque, Counter, OrderedDict and defaultdict of these; rows; dataclasses,
NamedTuples and enums that the step's own first state is made of. Classes are never looked up by a name that
the bytes give: only those that a new state and its annotations show are known. An object that is met twice
stays one object.

The bytes are JSON: null, bools, numbers and texts as they are, all else as a list that begins with its kind.
"""

from __future__ import annotations

import json
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import name_of
from penstock.errors import CheckpointError
from penstock.expr.values import from_list, from_numpy, to_numpy
from penstock.operators.function import Row, RowFunction
from penstock.operators.op import Op, Stream
from penstock.stages.rows.batch import Ints
from penstock.stages.snapshot import HINT
from penstock.stages.stage import StageContext

FACTORIES: Mapping[str, Callable[[], Any] | None] = {
    "none": None,
    **{factory.__name__: factory for factory in (int, float, str, bool, list, dict, set)},
}
"""What a defaultdict in a state may make of a missing key."""
_MUTABLE: Mapping[str, Callable[[], Any]] = {
    cls.__name__: cls for cls in (list, set, dict, Counter, OrderedDict)
}
"""Containers that are made empty and can hold themselves."""


class NotSerializable(Exception):
    """A value that no saved state can hold, or that none of today's classes can take up; says why."""


class StateEncoder:
    """Turns the states of one step into bytes."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self._names = {cls: name for name, cls in classes.items()}
        self._seen: dict[int, int] = {}
        self._open: set[int] = set()  # what is made of its parts, and so cannot be one of them
        self._containers: list[object] = []  # keeps ids from being used again while we walk

    def encode(self, state: object) -> bytes:
        """Return the state as bytes; raise NotSerializable, naming what it holds, if it cannot be saved."""
        self._seen, self._open, self._containers = {}, set(), []
        try:
            return json.dumps(self._encode(state), separators=(",", ":")).encode()
        except RecursionError:
            raise NotSerializable("it is nested too deeply") from None

    def _encode(self, value: object) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        simple = _SCALARS.get(kind)
        if simple is not None:
            return [kind.__name__, simple[0](value)]
        if isinstance(value, Enum):
            return ["enum", self._class_name(kind), value.name]
        if isinstance(value, np.number | np.bool_):
            return ["numpy", value.dtype.str, value.tobytes().hex()]
        if id(value) in self._open:
            raise NotSerializable(f"it holds {_with_article(kind)} that holds itself")
        if id(value) in self._seen:
            return ["same", self._seen[id(value)]]
        self._seen[id(value)] = len(self._containers)
        self._containers.append(value)
        if isinstance(value, tuple | frozenset | Row):
            self._open.add(id(value))
        coded = self._encode_container(value, kind)
        self._open.discard(id(value))
        return coded

    def _encode_container(self, value: Any, kind: type) -> list[Any]:
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, *map(self._encode, value)]
        if kind in (dict, Counter, OrderedDict):
            return [kind.__name__, *self._pairs(value)]
        if kind is deque:
            return ["deque", value.maxlen, *map(self._encode, value)]
        if kind is defaultdict:
            names = [name for name, factory in FACTORIES.items() if factory is value.default_factory]
            if not names:
                raise NotSerializable(f"it holds a defaultdict of {value.default_factory!r:.80}")
            return ["defaultdict", names[0], *self._pairs(value)]
        if isinstance(value, Row):
            return ["row", *self._pairs(value._values)]
        if is_dataclass(kind):
            held = {field.name: getattr(value, field.name) for field in fields(kind)}
            more = [name for name in getattr(value, "__dict__", ()) if name not in held]
            if more:
                raise NotSerializable(
                    f"it holds {_with_article(kind)} with {more[0]}, which is not a field of it"
                )
            return ["dataclass", self._class_name(kind), *self._pairs(held)]
        if _is_named_tuple(kind):
            return ["namedtuple", self._class_name(kind), *map(self._encode, value)]
        raise NotSerializable(f"it holds {_with_article(kind)} {value!r:.80}")

    def _pairs(self, held: Mapping[Any, Any]) -> list[Any]:
        return [self._encode(part) for pair in held.items() for part in pair]

    def _class_name(self, kind: type) -> str:
        if kind not in self._names:
            raise NotSerializable(
                f"it holds {_with_article(kind)}, which neither the first state nor its annotations show"
            )
        return self._names[kind]


def _with_article(kind: type) -> str:
    return f"{'an' if kind.__name__[:1].lower() in 'aeiou' else 'a'} {kind.__qualname__}"


class StateDecoder:
    """Turns bytes back into the states of one step; rows get the step's schema."""

    def __init__(self, classes: Mapping[str, type], schema: pa.Schema) -> None:
        self._classes, self._schema = classes, schema
        self._containers: list[Any] = []

    def decode(self, data: bytes) -> object:
        """Return the state; raise NotSerializable if a class of it is gone or has other fields."""
        self._containers = []
        return self._decode(json.loads(data))

    def _decode(self, coded: Any) -> Any:
        if not isinstance(coded, list):
            return coded
        kind, *parts = coded
        if kind in _SCALAR_DECODERS:
            return _SCALAR_DECODERS[kind](parts[0])
        if kind == "same":
            return self._containers[parts[0]]
        if kind == "enum":
            return self._class(parts[0])[parts[1]]
        if kind == "numpy":
            return np.frombuffer(bytes.fromhex(parts[1]), np.dtype(parts[0]))[0]
        return self._decode_container(kind, parts)

    def _decode_container(self, kind: str, parts: list[Any]) -> Any:
        """Return a container; one that can hold itself is registered before its parts are read."""
        place = len(self._containers)
        container: Any = None
        if kind in _MUTABLE:
            container = _MUTABLE[kind]()
        elif kind == "deque":
            container = deque(maxlen=parts.pop(0))
        elif kind == "defaultdict":
            container = defaultdict(FACTORIES[parts.pop(0)])
        elif kind == "dataclass":
            container = object.__new__(self._class(parts.pop(0)))
        self._containers.append(container)
        match kind:
            case "list" | "deque":
                container.extend(map(self._decode, parts))
            case "set":
                container.update(map(self._decode, parts))
            case "dataclass":
                held, wanted = dict(self._pairs(parts)), [field.name for field in fields(container)]
                if sorted(wanted) != sorted(held):
                    raise NotSerializable(
                        f"{type(container).__qualname__} was saved with {', '.join(held)},"
                        f" and now has {', '.join(wanted)}"
                    )
                for name, value in held.items():
                    object.__setattr__(container, name, value)  # frozen ones too
            case "row":
                container = Row(dict(self._pairs(parts)), self._schema)
            case "namedtuple":
                container = self._class(parts.pop(0))(*map(self._decode, parts))
            case "tuple" | "frozenset":
                container = {"tuple": tuple, "frozenset": frozenset}[kind](map(self._decode, parts))
            case _:
                for key, value in self._pairs(parts):
                    container[key] = value  # a Counter's update would count the pairs
        self._containers[place] = container
        return container

    def _pairs(self, parts: list[Any]) -> list[tuple[Any, Any]]:
        values = [self._decode(part) for part in parts]
        return list(zip(values[::2], values[1::2], strict=True))

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            raise NotSerializable(f"it holds a {name}, and the step's first state no longer shows that class")
        return self._classes[name]


def _encode_datetime(value: datetime) -> str:
    if value.tzinfo is not None and not isinstance(value.tzinfo, timezone):
        raise NotSerializable(
            f"it holds a datetime in the zone {value.tzinfo}; UTC and fixed offsets can be saved"
        )
    return value.isoformat()


_SCALARS: Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: (bytes.hex, bytes.fromhex),
    datetime: (_encode_datetime, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    timedelta: (
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: timedelta(*parts),
    ),
    Decimal: (str, Decimal),
}
"""To JSON and back."""
_SCALAR_DECODERS = {kind.__name__: read for kind, (_, read) in _SCALARS.items()}


def state_classes(state: object, *annotations: object) -> dict[str, type]:
    """Return the classes of a state and of annotations by name: dataclasses, NamedTuples and enums.

    Saved state is decoded into objects of these classes and of no others. Of two classes with one name,
    neither can be saved.
    """
    classes: dict[str, type] = {}
    twice: set[str] = set()
    waiting = [*_walk_value_types(state), *annotations]
    seen: list[object] = []
    while waiting:
        item = waiting.pop()
        if any(item is other for other in seen):
            continue
        seen.append(item)
        waiting += typing.get_args(item)
        if isinstance(item, type) and (is_dataclass(item) or issubclass(item, Enum) or _is_named_tuple(item)):
            waiting += _hints(item).values()
            if classes.setdefault(item.__qualname__, item) is not item:
                twice.add(item.__qualname__)
    return {name: cls for name, cls in classes.items() if name not in twice}


def _walk_value_types(state: object) -> Iterator[object]:
    """Yield the types of a value and of what is in it."""
    waiting, seen = [state], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield type(value)
        if is_dataclass(value) and not isinstance(value, type):
            waiting += [getattr(value, field.name, None) for field in fields(value)]
        elif isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Iterator):
            waiting += list(value)


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _hints(item: object) -> dict[str, object]:
    """Return the annotations of a class or a function; none if they cannot be read at run time."""
    try:
        return typing.get_type_hints(item)
    except (NameError, TypeError):
        return {}


_STATE_SCHEMA = pa.schema([("place", pa.int64()), ("state", pa.binary())])
_NO_INTS: Ints = np.empty(0, np.int64)


class SavedStates:
    """States as they were saved, by slot, until somebody asks for them.

    A column of each piece stays as it is: all of them together may be longer than a column can be.
    """

    def __init__(self) -> None:
        self._columns: list[pa.Array] = []
        self._begins = _NO_INTS  # of each column, the place of its first state among those of all columns
        self._n_states = self._n_left = 0  # in all columns, and of those not yet taken
        self._places = _NO_INTS  # slot -> place in all columns, or -1

    def __bool__(self) -> bool:
        return self._n_left > 0

    def put(self, slots: Ints, saved: pa.RecordBatch) -> None:
        """Keep the states of a piece in place of older ones; its keys have these slots."""
        n_slots = int(slots.max(initial=-1)) + 1
        if n_slots > len(self._places):
            more = max(n_slots, 2 * len(self._places)) - len(self._places)
            self._places = np.append(self._places, np.full(more, -1, np.int64))
        self._n_left += saved.num_rows - int(np.count_nonzero(self._places[slots] >= 0))
        self._places[slots] = -1
        self._places[slots[to_numpy(saved.column("place"))]] = self._n_states + np.arange(saved.num_rows)
        self._columns.append(saved.column("state"))
        self._begins = np.append(self._begins, self._n_states)
        self._n_states += saved.num_rows

    def take(self, slots: Ints) -> Iterator[tuple[int, bytes]]:
        """Yield slots with their states, which are no longer kept then; slots without one are left out."""
        slots = np.unique(slots)
        for indices, states in self._find_states(slots):
            owners = slots[indices]
            yield from zip(owners.tolist(), states.to_pylist(), strict=True)
            self._places[owners] = -1
            self._n_left -= len(owners)
        self._remove_empty()

    def select(self, slots: Ints) -> pa.RecordBatch:
        """Return the states of slots that are kept here; their places are indices of slots."""
        parts = list(self._find_states(slots))
        indices = np.concatenate([_NO_INTS, *(indices for indices, _ in parts)])
        states = pa.concat_arrays([from_list([], pa.binary()), *(states for _, states in parts)])
        return pa.RecordBatch.from_arrays([from_numpy(indices), states], schema=_STATE_SCHEMA)

    def _find_states(self, slots: Ints) -> Iterator[tuple[Ints, pa.Array]]:
        """Yield the states of slots column by column, with the indices of their slots."""
        places = self._find(slots)
        indices = np.flatnonzero(places >= 0)
        indices = indices[np.argsort(places[indices], kind="stable")]
        places = places[indices]
        ends = np.append(np.searchsorted(places, self._begins), len(places))
        for at in np.flatnonzero(np.diff(ends)).tolist():
            part = slice(ends[at], ends[at + 1])
            yield indices[part], self._columns[at].take(from_numpy(places[part] - self._begins[at]))

    def pop(self, slot: int) -> bytes | None:
        """Return the state of a slot, which is no longer kept then; None if there is none."""
        place = int(self._places[slot]) if slot < len(self._places) else -1
        if place < 0:
            return None
        at = int(np.searchsorted(self._begins, place, side="right")) - 1
        state: bytes = self._columns[at][place - int(self._begins[at])].as_py()
        self._places[slot] = -1
        self._n_left -= 1
        self._remove_empty()
        return state

    def _remove_empty(self) -> None:
        """Forget the columns once all of their states have been taken."""
        if not self._n_left:
            self._columns, self._begins, self._n_states = [], _NO_INTS, 0

    def _find(self, slots: Ints) -> Ints:
        """Return the places of slots in all columns, -1 for those that have none."""
        places = np.full(len(slots), -1, np.int64)
        is_within = slots < len(self._places)
        places[is_within] = self._places[slots[is_within]]
        return places


class StateCodec:
    """The states of one step as columns of a snapshot.

    State is restored only by a step with the same operator, function, key and input; what the function does
    inside may change. A state that cannot be saved is an error when a snapshot is taken, and not before: a
    run without a checkpoint may keep anything.
    """

    def __init__(
        self, op: Op, up: Stream, site: StageContext, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self._up, self._site, self._function, self._new_state = up, site, function, new_state
        self.fingerprint = {
            "operator": type(op).__name__,
            "key": ", ".join(up.key),
            "function": function.name,
            "input schema": ", ".join(f"{field.name}: {field.type}" for field in up.schema),
            "time": str(up.time),
        }

    @cached_property
    def _classes(self) -> Mapping[str, type]:
        """Return the classes that states may hold, as a new state shows them."""
        annotations = [_hints(function).get("return") for function in (self._function.call, self._new_state)]
        return state_classes(self._new_state(), *annotations)

    @cached_property
    def _decoder(self) -> StateDecoder:
        return StateDecoder(self._classes, self._up.schema)

    def encode(
        self, states: Mapping[int, Any], keys: pa.RecordBatch, encoded: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Return states by the index of their key, as columns, and behind them those that are so already."""
        saving = StateEncoder(self._classes)
        coded = []
        for place, state in states.items():
            try:
                coded.append(saving.encode(state))
            except NotSerializable as problem:
                raise self._refusal(problem, keys.slice(place, 1)) from None
        columns = [from_list(list(states), pa.int64()), from_list(coded, pa.binary())]
        if encoded.num_rows:
            columns = [pa.concat_arrays(pair) for pair in zip(columns, encoded.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_STATE_SCHEMA)

    def decode(self, data: bytes) -> object:
        """Return a state; raise CheckpointError if none of today's classes can take it up."""
        try:
            return self._decoder.decode(data)
        except NotSerializable as problem:
            raise CheckpointError(
                f'a saved state of step "{self._site.step}" cannot be taken up: {problem}',
                step=self._site.step,
                where=self._function.where,
                hint=HINT,
            ) from None

    def _refusal(self, problem: NotSerializable, key: pa.RecordBatch) -> CheckpointError:
        key_text = ", ".join(
            f"{name}={column[0].as_py()!r:.80}"
            for name, column in zip(self._up.key, key.columns, strict=True)
        )
        return CheckpointError(
            f"the state that {self._function.name} keeps for {key_text} cannot be saved: {problem}",
            step=self._site.step,
            where=self._function.where or self._site.where,
            detail="saved state holds plain values, lists, dicts, sets, rows, and dataclasses of these",
            hint=f"keep such values in the state that {name_of(self._new_state)} begins,"
            " or run without checkpoint=",
        )
