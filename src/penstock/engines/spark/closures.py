"""What travels to Python workers as a pickle: users' functions, and the step that a worker runs.

Spark ships closures by cloudpickle. `require_picklable` refuses, before anything runs, what it cannot send,
and names the function, its line and the variable in it that is to blame. `run_in_worker` wraps a method so
that a worker whose Python lacks a package says which one and how to mend it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import getclosurevars, unwrap
from types import FunctionType, MethodType
from typing import Any

from penstock.caller import find_definition, name_of
from penstock.errors import FunctionError
from penstock.frozen import Frozen

WorkerFunction = Callable[[Iterator[Any]], Iterator[Any]]
"""What `mapInArrow` takes."""
_MAX_DEPTH = 8


class Culprit(Frozen):
    """A value that cannot be pickled, the name that it has in its holder, why, and the function around it."""

    name: str
    value: Any
    reason: str
    function: Any


def require_picklable(subject: str, value: Any) -> None:
    """Raise a FunctionError that names what is to blame if a value cannot be sent to workers.

    subject  what the user calls the value: `aggregate twice=fold(add)`, `step "clean"`
    """
    culprit = find_culprit(value)
    if culprit is None:
        return
    type_ = type(culprit.value)
    kind = (
        type_.__qualname__ if type_.__module__ == "builtins" else f"{type_.__module__}.{type_.__qualname__}"
    )
    holder = f"function {name_of(culprit.function)}" if culprit.function is not None else "it"
    raise FunctionError(
        f"{subject} cannot be sent to the workers of Spark",
        where=find_definition(culprit.function),
        detail=f'{holder} holds "{culprit.name}", a {kind}: {culprit.reason}',
        hint=f'create "{culprit.name}" inside the function, or in a module of yours that the workers import',
    )


def find_culprit(
    value: Any, name: str = "", function: Any = None, depth: int = 0, seen: frozenset[int] = frozenset()
) -> Culprit | None:
    """Return the innermost part of a value that cannot be pickled; None if all of it can."""
    reason = _why_not(value)
    if reason is None:
        return None
    is_code = isinstance(value, (FunctionType, MethodType, partial)) or _is_callable_object(value)
    holder = value if is_code else function
    for part_name, part in _parts(value) if depth < _MAX_DEPTH else ():
        if id(part) not in seen:
            culprit = find_culprit(part, part_name, holder, depth + 1, seen | {id(value)})
            if culprit is not None:
                return culprit
    return Culprit(name, value, reason, function)


def _why_not(value: Any) -> str | None:
    """Return why a value cannot be pickled; None if it can."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception as cause:  # whatever a __reduce__ of the user's raises
        return f"{cause}" or type(cause).__name__
    return None


def _is_callable_object(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and hasattr(type(value).__call__, "__code__")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled along with a value, by the name that it has there."""
    if isinstance(value, MethodType):
        yield "self", value.__self__
    elif isinstance(value, partial):
        yield name_of(value.func), value.func
        yield from ((f"argument {place}", part) for place, part in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        plain = unwrap(value)
        names = getclosurevars(plain) if isinstance(plain, FunctionType) else None
        yield from ({**names.globals, **names.nonlocals}.items() if names is not None else ())
        yield from ((f"default {place}", part) for place, part in enumerate(value.__defaults__ or ()))
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield from ((f"item {place}", part) for place, part in enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif hasattr(value, "__dict__"):
        yield from vars(value).items()


def run_in_worker(method: WorkerFunction) -> WorkerFunction:
    """Return a function for `mapInArrow` that runs a method of a task, and says if a package is missing."""
    from pyspark import cloudpickle

    payload: bytes = cloudpickle.dumps(method)

    # Invariant: it uses no name of this module, so a worker that cannot import the package can still load it.
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pickle
        import platform
        import sys

        try:
            loaded = pickle.loads(payload)  # noqa: S301 (the driver's own bytes)
        except ImportError as missing:
            package = (missing.name or str(missing)).partition(".")[0]
            raise ImportError(
                f'a Python worker of Spark cannot import "{package}"\n'
                f"  detail: {missing}; the worker runs {sys.executable}, Python {platform.python_version()}\n"
                f"  hint:   install it there, or let PYSPARK_PYTHON name a Python that has it, before Spark "
                f'starts: os.environ["PYSPARK_PYTHON"] = sys.executable'
            ) from missing
        return loaded(batches)  # type: ignore[no-any-return]

    return run
