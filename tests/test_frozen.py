"""Dataclasses of `penstock.frozen` behave as Python's own do.

Every shape of class is made by both decorators, and all that can be observed of the two is compared.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from penstock.frozen import Frozen, FrozenType, dataclass

Decorator = Callable[..., Callable[[type], type]]
FROZEN: dict[str, Any] = {"frozen": True, "slots": True}


def derive(*, kw_only: bool = False, eq: bool = True, **_: bool) -> Callable[[type], type]:
    """Returns a decorator that makes the same class below `Frozen`; what is below it already stays."""

    def make(cls: type) -> type:
        if isinstance(cls, FrozenType):
            return cls
        own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        own["__qualname__"] = cls.__qualname__
        return FrozenType(cls.__name__, (Frozen,), own, kw_only=kw_only, by_identity=not eq)

    return make


def plain(decorate: Decorator) -> type:
    @decorate(**FROZEN)
    class Plain:
        """Two fields, one with a default."""

        a: int
        b: object = "b"

    return Plain


def empty(decorate: Decorator) -> type:
    @decorate(**FROZEN)
    class Empty:
        """No fields."""

    return Empty


def single(decorate: Decorator) -> type:
    @decorate(**FROZEN)
    class Single:
        """One field, which may be a NaN."""

        a: object

    return Single


def derive_class(decorate: Decorator) -> type:
    @decorate(frozen=True, slots=True, kw_only=True)
    class Base:
        """Only by name."""

        name: str | None = None
        size: int = 3
        kind: ClassVar[str] = "base"

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("less than nothing")
            object.__setattr__(self, "size", self.size + 1)

    @decorate(**FROZEN)
    class Subclass(Base):
        """Adds fields, and has one of its base again."""

        first: int
        items: list[int] = field(default_factory=list, compare=False)
        size: int = field(default=5, kw_only=True)

        def __post_init__(self) -> None:
            Base.__post_init__(self)

    return Subclass


def hidden(decorate: Decorator) -> type:
    @decorate(**FROZEN)
    class Hidden:
        """Fields that are not shown, not compared, not given."""

        a: int
        secret: str = field(default="x", repr=False)
        noted: int = field(default=0, compare=False)
        twice: int = field(init=False)
        put_a: int = 1

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.a)

    return Hidden


def by_hand(decorate: Decorator) -> type:
    @decorate(**FROZEN)
    class ByHand:  # noqa: PLW1641 (the maker adds what is missing)
        """What a class has itself stays."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ByHand) and self.a % 2 == other.a % 2

        def __repr__(self) -> str:
            return f"<{self.a}>"

    return ByHand


def by_identity(decorate: Decorator) -> type:
    @decorate(frozen=True, slots=True, eq=False, repr=False)
    class ByIdentity:
        """Neither compared nor shown."""

        a: int

    return ByIdentity


NAN = float("nan")
SHAPES: dict[str, tuple[Callable[[Decorator], type], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "plain": (
        plain,
        [((1,), {}), ((1, "b"), {}), ((), {"a": 2}), ((1,), {"b": [3]}), ((), {}), ((1, 2, 3), {})],
    ),
    "empty": (empty, [((), {}), ((1,), {})]),
    "single": (single, [((NAN,), {}), (("x",), {}), ((), {"a": (1, 2)}), ((), {"b": 1})]),
    "derived": (
        derive_class,
        [
            ((1,), {}),
            ((1, [2]), {"name": "n"}),
            ((), {"first": 1, "size": -1}),
            ((1, [2], 7, "n"), {}),
            ((1, [], 7), {}),
        ],
    ),
    "hidden": (hidden, [((1,), {}), ((1, "y", 5), {}), ((), {"a": 1, "twice": 3}), ((3,), {"put_a": 4})]),
    "by hand": (by_hand, [((1,), {}), ((3,), {}), ((4,), {})]),
    "by identity": (by_identity, [((1,), {}), ((1,), {})]),
}


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Returns what a call returns, or what it raises."""
    try:
        return call(*arguments, **named)
    except Exception as failure:
        return type(failure), str(failure)


def observe(cls: Any, arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> Iterator[Any]:
    """Yields all that can be observed of a class and its objects."""
    names = [field.name for field in dataclasses.fields(cls)]
    yield str(inspect.signature(cls)), cls.__doc__, cls.__match_args__, cls.__name__, cls.__qualname__
    yield [
        (field.name, field.type, field.init, field.repr, field.compare) for field in dataclasses.fields(cls)
    ]
    outcomes = [outcome(cls, *positional, **named) for positional, named in arguments]
    instances = [outcome_ for outcome_ in outcomes if isinstance(outcome_, cls)]
    yield [outcome_ for outcome_ in outcomes if not isinstance(outcome_, cls)]
    for instance in instances:
        yield repr(instance) if "__repr__" in vars(cls) else None
        yield outcome(hash, instance) if "__eq__" in vars(cls) else None
        yield (
            [instance == other for other in instances],
            instance == 1,
            instance != instance,
            hasattr(instance, "__dict__"),
        )
        yield [(outcome(setattr, instance, name, 1), outcome(delattr, instance, name)) for name in names]
        yield dataclasses.asdict(instance), dataclasses.astuple(instance), instance.__getstate__()
        yield {name: getattr(copy.copy(instance), name) for name in names}
        for name in names:
            other = outcome(dataclasses.replace, instance, **{name: 9})
            yield dataclasses.asdict(other) if isinstance(other, cls) else other


@pytest.mark.parametrize("decorate", [dataclass, derive], ids=["decorated", "derived"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_a_class_is_what_pythons_own_would_be(name: str, decorate: Decorator) -> None:
    shape, arguments = SHAPES[name]
    ours, theirs = observe(shape(decorate), arguments), observe(shape(dataclasses.dataclass), arguments)
    for our, their in zip(ours, theirs, strict=True):
        assert our == their


class Travels(Frozen):
    """Found by its name."""

    a: int
    held: tuple[object, ...] = ()


def test_objects_travel_and_can_be_copied() -> None:
    one = Travels(1, (Travels(2),))
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one)):
        assert other == one
        assert other is not one
        assert repr(other) == "Travels(a=1, held=(Travels(a=2, held=()),))"


def test_an_object_that_holds_itself_can_be_shown() -> None:
    held: list[object] = []
    one = Travels(1, (held,))
    held.append(one)
    assert repr(one) == "Travels(a=1, held=([...],))"


def test_objects_match_by_position() -> None:
    match Travels(1, ("x",)):
        case Travels(a, (held,)):
            assert (a, held) == (1, "x")
        case _:
            pytest.fail("it is one")


@pytest.mark.parametrize("how", [{}, {"eq": False}], ids=str)
def test_what_is_not_frozen_may_change(how: dict[str, Any]) -> None:
    def counts(decorate: Decorator) -> Any:
        @decorate(slots=True, **how)
        class Counts:
            """May change."""

            n: int = 0
            held: list[int] = field(default_factory=list)

        return Counts

    def observe(cls: Any) -> Iterator[Any]:
        one = cls()
        one.n += 1
        one.held.append(2)
        yield repr(one), one == cls(1, [2]), one == cls(1), cls.__hash__ is None
        yield outcome(setattr, one, "other", 1), outcome(hash, one) if not how else None
        yield copy.deepcopy(one).held, dataclasses.asdict(dataclasses.replace(one, n=3))
        del one.n
        yield outcome(getattr, one, "n")

    assert list(observe(counts(dataclass))) == list(observe(counts(dataclasses.dataclass)))


def test_a_class_can_be_asked_for_its_signature_before_there_is_an_object() -> None:
    assert str(inspect.signature(plain(dataclass))) == "(a: 'int', b: 'object' = 'b') -> None"


def test_what_a_program_may_load_is_made_quickly() -> None:
    source, slow = Path(penstock.__file__).parent, []
    for file in sorted(source.rglob("*.py")):
        room = file.relative_to(source).parts[0]
        text = file.read_text(encoding="utf-8")
        if room not in ("frozen.py", "bench", "apps", "cli", "testing") and "@dataclass" in text:
            slow += [] if re.search(r"from penstock.frozen import .*\bdataclass\n", text) else [str(file)]
    assert slow == []
