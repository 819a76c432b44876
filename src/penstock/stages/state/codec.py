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
from penstock.operators.function import RowFunction
from penstock.operators.op import Op
from penstock.operators.row import Row
from penstock.operators.stream import Stream
from penstock.stages.snapshot import HINT
from penstock.stages.stage import Site

FACTORIES: Mapping[str, Callable[[], Any] | None] = {
    "none": None,
    **{made.__name__: made for made in (int, float, str, bool, list, dict, set)},
}
"""What a defaultdict in a state may make of a missing key."""


class NotSerializable(Exception):
    """A value that no saved state can hold, or that none of today's classes can take up; says why."""


class StateEncoder:
    """Turns the states of one step into bytes."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self._names = {cls: name for name, cls in classes.items()}
        self._seen: dict[int, int] = {}
        self._open: set[int] = set()  # what is made of its parts, and so cannot be one of them
        self._held: list[object] = []  # keeps ids from being used again while we walk

    def bytes_of(self, state: object) -> bytes:
        """The state; CannotSave, naming what it holds, if it cannot be saved."""
        self._seen, self._open, self._held = {}, set(), []
        try:
            return json.dumps(self._coded(state), separators=(",", ":")).encode()
        except RecursionError:
            raise NotSerializable("it is nested too deeply") from None

    def _coded(self, value: object) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        simple = _SCALARS.get(kind)
        if simple is not None:
            return [kind.__name__, simple[0](value)]
        if isinstance(value, Enum):
            return ["enum", self._known(kind), value.name]
        if isinstance(value, np.number | np.bool_):
            return ["numpy", value.dtype.str, value.tobytes().hex()]
        if id(value) in self._open:
            raise NotSerializable(f"it holds {_with_article(kind)} that holds itself")
        if id(value) in self._seen:
            return ["same", self._seen[id(value)]]
        self._seen[id(value)] = len(self._held)
        self._held.append(value)
        if isinstance(value, tuple | frozenset | Row):
            self._open.add(id(value))
        coded = self._coded_parts(value, kind)
        self._open.discard(id(value))
        return coded

    def _coded_parts(self, value: Any, kind: type) -> list[Any]:
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, *map(self._coded, value)]
        if kind in (dict, Counter, OrderedDict):
            return [kind.__name__, *self._pairs(value)]
        if kind is deque:
            return ["deque", value.maxlen, *map(self._coded, value)]
        if kind is defaultdict:
            return ["defaultdict", _factory_name(value.default_factory), *self._pairs(value)]
        if isinstance(value, Row):
            return ["row", *self._pairs(value._values)]
        if is_dataclass(kind):
            held = {field.name: getattr(value, field.name) for field in fields(kind)}
            more = [name for name in getattr(value, "__dict__", ()) if name not in held]
            if more:
                raise NotSerializable(
                    f"it holds {_with_article(kind)} with {more[0]}, which is not a field of it"
                )
            return ["dataclass", self._known(kind), *self._pairs(held)]
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return ["namedtuple", self._known(kind), *map(self._coded, value)]
        raise NotSerializable(f"it holds {_with_article(kind)} {value!r:.80}")

    def _pairs(self, held: Mapping[Any, Any]) -> list[Any]:
        return [self._coded(part) for pair in held.items() for part in pair]

    def _known(self, kind: type) -> str:
        if kind not in self._names:
            raise NotSerializable(
                f"it holds {_with_article(kind)}, which neither the first state nor its annotations show"
            )
        return self._names[kind]


def _factory_name(made: Callable[[], Any] | None) -> str:
    for name, known in FACTORIES.items():
        if made is known:
            return name
    raise NotSerializable(f"it holds a defaultdict of {made!r:.80}")


def _with_article(kind: type) -> str:
    return f"{'an' if kind.__name__[:1].lower() in 'aeiou' else 'a'} {kind.__qualname__}"


class StateDecoder:
    """Turns bytes back into the states of one step; rows get the step's schema."""

    def __init__(self, classes: Mapping[str, type], schema: pa.Schema) -> None:
        self._classes, self._schema = classes, schema
        self._held: list[Any] = []

    def state_of(self, data: bytes) -> object:
        """The state; CannotSave if a class of it is gone or has other fields."""
        self._held = []
        return self._value(json.loads(data))

    def _value(self, coded: Any) -> Any:
        if not isinstance(coded, list):
            return coded
        kind, *parts = coded
        if kind in _SCALAR_DECODERS:
            return _SCALAR_DECODERS[kind](parts[0])
        if kind == "same":
            return self._held[parts[0]]
        if kind == "enum":
            return self._class(parts[0])[parts[1]]
        if kind == "numpy":
            return np.frombuffer(bytes.fromhex(parts[1]), np.dtype(parts[0]))[0]
        return self._held_value(kind, parts)

    def _held_value(self, kind: str, parts: list[Any]) -> Any:
        """A value that may be met again; what can hold itself is known before its parts are read."""
        place = len(self._held)
        made = self._empty(kind, parts)
        self._held.append(made)
        if kind in ("list", "deque"):
            made.extend(map(self._value, parts[kind == "deque" :]))
        elif kind == "set":
            made.update(map(self._value, parts))
        elif kind in ("dict", "Counter", "OrderedDict", "defaultdict"):
            for key, value in self._pairs(parts[kind == "defaultdict" :]):
                made[key] = value  # a Counter's update would count the pairs
        elif kind == "dataclass":
            self._fill(made, dict(self._pairs(parts[1:])))
        else:
            self._held[place] = made = self._finished(kind, parts)
        return made

    def _empty(self, kind: str, parts: list[Any]) -> Any:
        if kind == "deque":
            return deque(maxlen=parts[0])
        if kind == "defaultdict":
            return defaultdict(FACTORIES[parts[0]])
        if kind == "dataclass":
            return object.__new__(self._class(parts[0]))
        made = {each.__name__: each for each in (list, set, dict, Counter, OrderedDict)}.get(kind)
        return None if made is None else made()

    def _finished(self, kind: str, parts: list[Any]) -> Any:
        """What cannot change after it is made, and so is made of its parts."""
        if kind == "row":
            return Row(dict(self._pairs(parts)), self._schema)
        if kind == "namedtuple":
            return self._class(parts[0])(*map(self._value, parts[1:]))
        return {"tuple": tuple, "frozenset": frozenset}[kind](map(self._value, parts))

    def _fill(self, made: object, held: dict[str, Any]) -> None:
        wanted = [field.name for field in fields(made)]  # type: ignore[arg-type]  # it is a dataclass
        if sorted(wanted) != sorted(held):
            raise NotSerializable(
                f"{type(made).__qualname__} was saved with {', '.join(held)}, and now has {', '.join(wanted)}"
            )
        for name, value in held.items():
            object.__setattr__(made, name, value)  # frozen ones too

    def _pairs(self, parts: list[Any]) -> list[tuple[Any, Any]]:
        values = [self._value(part) for part in parts]
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
        lambda given: timedelta(*given),
    ),
    Decimal: (str, Decimal),
}
"""To JSON and back."""
_SCALAR_DECODERS = {kind.__name__: read for kind, (_, read) in _SCALARS.items()}

# Which classes the states of a step are made of: those of a new state, and those that annotations name.
#
# Saved state is turned back into objects of these classes and of no others.


def state_classes(state: object, *annotations: object) -> dict[str, type]:
    """Dataclasses, NamedTuples and enums by name; of two with one name, neither can be saved."""
    found: dict[str, type] = {}
    twice: set[str] = set()
    for cls in _walk_classes(state, annotations):
        if found.setdefault(cls.__qualname__, cls) is not cls:
            twice.add(cls.__qualname__)
    return {name: cls for name, cls in found.items() if name not in twice}


def _walk_classes(state: object, annotations: Iterable[object]) -> Iterator[type]:
    """Every class that is met, each once."""
    waiting = [*_walk_value_types(state), *annotations]
    seen: list[object] = []
    while waiting:
        given = waiting.pop()
        if any(given is each for each in seen):
            continue
        seen.append(given)
        waiting += typing.get_args(given)
        if isinstance(given, type) and _is_saved_by_name(given):
            yield given
            waiting += _hints(given).values()


def _walk_value_types(state: object) -> Iterator[object]:
    """The types of a value and of what is in it."""
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


def _is_saved_by_name(cls: type) -> bool:
    return is_dataclass(cls) or issubclass(cls, Enum) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def _hints(cls: type) -> dict[str, object]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError):  # annotations that only a type checker can read show nothing
        return {}


# How the states of one step are saved: which classes they may hold, and what they depend on.
#
# State is taken up again only by a step with the same operator, function, key and input; what the function
# does inside may change. A state that cannot be saved is an error when a snapshot is asked for, and not
# before: a run without a checkpoint may keep anything.

_STATE_SCHEMA = pa.schema([("place", pa.int64()), ("state", pa.binary())])


class StateCodec:
    """The states of one step as columns of a snapshot."""

    def __init__(
        self, op: Op, up: Stream, site: Site, function: RowFunction, new_state: Callable[[], Any]
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
        """The classes that states may hold; a new state is made to look at it."""
        return state_classes(
            self._new_state(), _return_annotation(self._function.call), _return_annotation(self._new_state)
        )

    def encode(self, states: Mapping[int, Any], keys: pa.RecordBatch) -> pa.RecordBatch:
        """States by the place of their key, as columns."""
        saving = StateEncoder(self._classes)
        coded = []
        for place, state in states.items():
            try:
                coded.append(saving.bytes_of(state))
            except NotSerializable as problem:
                raise self._refused(problem, keys.slice(place, 1)) from None
        return pa.RecordBatch.from_arrays(
            [pa.array(list(states), pa.int64()), pa.array(coded, pa.binary())], schema=_STATE_SCHEMA
        )

    def decode(self, saved: pa.RecordBatch) -> dict[int, Any]:
        """The states by the place of their key."""
        loading = StateDecoder(self._classes, self._up.schema)
        places = np.asarray(saved.column("place").to_numpy(), np.int64)
        try:
            states = [loading.state_of(data.as_py()) for data in saved.column("state")]
        except NotSerializable as problem:
            raise CheckpointError(
                f'a saved state of step "{self._site.step}" cannot be taken up: {problem}',
                step=self._site.step,
                where=self._function.where,
                hint=HINT,
            ) from None
        return dict(zip(places.tolist(), states, strict=True))

    def _refused(self, problem: NotSerializable, key: pa.RecordBatch) -> CheckpointError:
        shown = ", ".join(
            f"{name}={column[0].as_py()!r:.80}"
            for name, column in zip(self._up.key, key.columns, strict=True)
        )
        return CheckpointError(
            f"the state that {self._function.name} keeps for {shown} cannot be saved: {problem}",
            step=self._site.step,
            where=self._function.where or self._site.where,
            detail="saved state holds plain values, lists, dicts, sets, rows, and dataclasses of these",
            hint=f"keep such values in the state that {name_of(self._new_state)} begins,"
            " or run without checkpoint=",
        )


def _return_annotation(function: Callable[..., Any]) -> object:
    """What a function is annotated to give; None when it does not say, or only a type checker can tell."""
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None
