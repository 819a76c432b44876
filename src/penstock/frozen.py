"""Dataclasses with slots that are made quickly: `@dataclass(frozen=True, slots=True)`, without the wait.

A program that is done in a moment would spend a good part of it on making classes, because for every frozen
dataclass Python writes and compiles six methods. Here only `__init__` is compiled, which is called most, and
not before somebody asks for it; the others are alike for all classes. What a class is, its fields and their
order, Python's own `dataclass` finds out, so `fields`, `replace` and `asdict` work on it. What derives from a
class made here is made here too: Python takes these for not frozen, and derives no frozen ones from them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # so that it may be imported from here
else:

    def dataclass(*, frozen=False, slots, eq=True, repr=True, kw_only=False):
        """As `dataclasses.dataclass`, of classes with slots."""
        assert slots, "others are Python's own affair"
        return lambda cls: _made(cls, frozen=frozen, eq=eq, repr_=repr, kw_only=kw_only)


class _Factory:
    """Stands for a value that is yet to be made."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _made(cls: type, *, frozen: bool, eq: bool, repr_: bool, kw_only: bool) -> type:
    """The class with slots for its fields, and the methods that it does not have itself."""
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _Init(cls)}
    if repr_:
        methods["__repr__"] = _repr
    if eq:
        methods |= _equality(tuple(field.name for field in dataclasses.fields(cls) if field.compare))
    if frozen:
        methods |= _FROZEN
    elif eq:
        methods["__hash__"] = None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


class _Init:
    """The `__init__` of a class, which is put into its place when somebody asks for it."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, made: Any, cls: Any) -> Any:
        init = _init(self._cls, dataclasses.fields(self._cls))
        setattr(self._cls, "__init__", init)  # noqa: B010  # type checkers know better than to let us
        return init.__get__(made, cls)


def _init(cls: type, found: tuple[Field[Any], ...]) -> Any:
    """`__init__`, which puts values into their slots: the only way to do so."""
    space: dict[str, Any] = {"__name__": cls.__module__, "__factory": _FACTORY}
    given = [_given(field, space) for field in found if field.init and not field.kw_only]
    named = [_given(field, space) for field in found if field.init and field.kw_only]
    lines = [
        _line(cls, field, space) for field in found if field.init or field.default_factory is not MISSING
    ]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    taken = ", ".join(["self", *given, *(["*", *named] if named else ())])
    exec(f"def __init__({taken}):\n " + "\n ".join(lines or ["pass"]), space)  # noqa: S102  # names of fields
    init = space["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in found if field.init} | {"return": None}
    return init


def _given(field: Field[Any], space: dict[str, Any]) -> str:
    """A parameter; who is given no value for it has the default, or calls what makes one."""
    if field.default_factory is not MISSING:
        return f"{field.name}=__factory"
    if field.default is MISSING:
        return field.name
    space[f"__default_{field.name}"] = field.default
    return f"{field.name}=__default_{field.name}"


def _line(cls: type, field: Field[Any], space: dict[str, Any]) -> str:
    name = field.name
    space[f"__put_{name}"] = getattr(cls, name).__set__
    if field.default_factory is MISSING:
        return f"__put_{name}(self, {name})"
    space[f"__new_{name}"] = field.default_factory
    is_given = f"{name} if {name} is not __factory else " if field.init else ""
    return f"__put_{name}(self, {is_given}__new_{name}())"


def _equality(names: tuple[str, ...]) -> dict[str, Any]:
    """Equal are objects of one class whose fields are equal."""
    found = attrgetter(*names) if names else None
    get: Any = found if len(names) > 1 else lambda self: (found(self),) if found else ()

    def __eq__(self: Any, other: object) -> Any:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(get(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _put_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _put_state,
}
