"""Which classes the states of a step are made of: those of a new state, and those that annotations name.

Saved state is turned back into objects of these classes and of no others.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum


def classes_of(state: object, *annotations: object) -> dict[str, type]:
    """Dataclasses, NamedTuples and enums by name; of two with one name, neither can be saved."""
    found: dict[str, type] = {}
    twice: set[str] = set()
    for cls in _named(state, annotations):
        if found.setdefault(cls.__qualname__, cls) is not cls:
            twice.add(cls.__qualname__)
    return {name: cls for name, cls in found.items() if name not in twice}


def _named(state: object, annotations: Iterable[object]) -> Iterator[type]:
    """Every class that is met, each once."""
    waiting = [*_held(state), *annotations]
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


def _held(state: object) -> Iterator[object]:
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
