"""Dataclasses with slots that are quick to create: `class Pair(Frozen)`, `@dataclass(slots=True)`.

For every frozen dataclass Python's own decorator writes and compiles six methods. Here only `__init__` is
compiled, when somebody first asks for it; the other methods are shared by all classes. Which fields a class
has is found out by Python's own `dataclass`, so `fields`, `replace` and `asdict` work on it. With Python's
decorator in its place a small run of the in-process engine, from the start of the interpreter to its end,
takes about 80 ms more CPU time (250 to 330 ms; the program is in `tests/test_imports.py`).

Invariant: what derives from a class made here is made here too. Python takes these classes for not frozen,
and derives no frozen ones from them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # so that it may be imported from here
else:

    def dataclass(*, frozen=False, slots, eq=True, repr=True, kw_only=False):
        """Do what `dataclasses.dataclass` does, for classes with slots."""
        assert slots, "classes without slots are made by dataclasses.dataclass"
        return lambda cls: _process_class(cls, frozen=frozen, eq=eq, repr_=repr, kw_only=kw_only)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class FrozenType(type):
    """The type of what derives from `Frozen`: makes dataclasses of classes that have fields of their own.

    by_identity  whether objects are neither compared nor shown by their fields
    """

    by_identity = False

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **variables: Any
    ) -> FrozenType:
        """Return the class; `kw_only` is for the dataclass, and other keywords are class variables."""
        kw_only = variables.pop("kw_only", False)
        cls = super().__new__(mcls, name, bases, namespace)
        for variable, value in variables.items():
            setattr(cls, variable, value)
        adds_fields = "__annotations__" in namespace or not hasattr(cls, "__dataclass_fields__")
        if "__slots__" in namespace or not adds_fields:  # made by hand, or like its base
            return cls
        by_value = not cls.by_identity
        with_slots: FrozenType = _process_class(
            cls, frozen=True, eq=by_value, repr_=by_value, kw_only=kw_only
        )
        return with_slots

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, namespace)


class Frozen(metaclass=FrozenType):
    """The base of frozen dataclasses with slots, which need no decorator, nor do the classes below them.

    Class variables may be written beside the base.

    >>> class Sign(Frozen):
    ...     times: int = 1
    >>> class Plus(Sign, text="+"):
    ...     pass
    >>> Plus(3), Plus.text
    (Plus(times=3), '+')
    """

    __slots__ = ()


class _Factory:
    """Stands for a default that a factory has yet to make."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _process_class(cls: Any, *, frozen: bool, eq: bool, repr_: bool, kw_only: bool) -> Any:
    """Return the class with slots for its fields, and with the methods that it does not define itself."""
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _LazyInit(cls)}
    if repr_:
        methods["__repr__"] = _repr
    if eq:
        methods |= _build_equality(tuple(field.name for field in dataclasses.fields(cls) if field.compare))
    if frozen:
        methods |= _FROZEN_METHODS
    elif eq:
        methods["__hash__"] = None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


class _LazyInit:
    """The `__init__` of a class until somebody asks for it: then it is compiled and takes this place."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: Any, cls: Any) -> Any:
        init = _compile_init(self._cls)
        setattr(self._cls, "__init__", init)  # noqa: B010  # type checkers refuse the assignment
        return init.__get__(instance, cls)


def _compile_init(cls: type) -> Any:
    """Return an `__init__` that sets the slots directly, as `__setattr__` of a frozen class refuses to."""
    namespace: dict[str, Any] = {"__name__": cls.__module__, "__factory": _FACTORY}
    positional, keyword, statements = ["self"], ["*"], []
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = parameter = value = field.name
        if field.default is not MISSING:
            namespace[f"__default_{name}"] = field.default
            parameter = f"{name}=__default_{name}"
        elif field.default_factory is not MISSING:
            namespace[f"__new_{name}"] = field.default_factory
            parameter = f"{name}=__factory"
            value = (
                f"{name} if {name} is not __factory else __new_{name}()" if field.init else f"__new_{name}()"
            )
        if field.init:
            (keyword if field.kw_only else positional).append(parameter)
            annotations[name] = field.type
        if field.init or field.default_factory is not MISSING:
            namespace[f"__set_{name}"] = getattr(cls, name).__set__
            statements.append(f"__set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        statements.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(keyword if len(keyword) > 1 else ())])
    text = f"def __init__({parameters}):\n " + "\n ".join(statements or ["pass"])
    # Why compiled first: when a thread runs text, Python forgets that Ctrl-C ended the program: exit code 1.
    exec(compile(text, "<frozen>", "exec"), namespace)  # noqa: S102  # the text holds names of fields only
    init = namespace["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = annotations | {"return": None}
    return init


def _build_equality(names: tuple[str, ...]) -> dict[str, Any]:
    """Return `__eq__` and `__hash__`: objects of one class are equal if these fields are."""
    getter = attrgetter(*names) if names else None
    values: Any = getter if len(names) > 1 else lambda self: (getter(self),) if getter else ()

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


@recursive_repr()
def _repr(self: Any) -> str:
    values = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_change(self: Any, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN_METHODS = {
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}
