"""Packages whose names are loaded when somebody asks for them (PEP 562).

A program uses few of the names that Penstock has, and starts sooner without the modules of the others. The
names of a package are listed once, in its stub (`__init__.pyi`), which type checkers and editors read too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class NoSuchName(AttributeError):
    """A package has no such name; the message names the one that is most alike.

    That one is looked for when the message is read: importing a module from a package asks the package for
    its name first, in vain, and must not wait.
    """

    def __init__(self, package: LazyPackage, name: str) -> None:
        super().__init__(f"module {package.__name__!r} has no attribute {name!r}")
        self._package, self._name = package, name

    def __str__(self) -> str:
        from difflib import get_close_matches

        known = {name.lower(): name for name in self._package._homes}
        nearest = get_close_matches(self._name.lower(), known, 1)
        return super().__str__() + "".join(f"; did you mean {known[name]!r}?" for name in nearest)


class LazyPackage(ModuleType):
    """A package that loads its names on demand.

    Any number of threads may ask at once: a module is loaded under its own lock, and a name is always the
    same object.
    """

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> object:
        if (
            name == "__version__" and "." not in self.__name__
        ):  # looking it up takes longer than a small program
            from importlib.metadata import version

            return version(self.__name__)
        home = self._homes.get(name)
        if home is None:
            raise NoSuchName(self, name)
        module = import_module(home)
        is_module = home == f"{self.__name__}.{name}" and not hasattr(module, name)
        value: object = module if is_module else getattr(module, name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Why: importing a module sets it in its package, where a name may be that of its module (`sum`).
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Why: functions that mention `ps` travel to Spark's workers, and the package with them, by name.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*(name for name in vars(self) if name.startswith("__")), *self._homes})


def attach_stub(package: str) -> None:
    """Make a package load on demand the names of its stub, each in a line `from home import name as name`."""
    module = sys.modules[package]
    spec: Any = module.__spec__
    # Why: the loader reads the stub, and not `open`, because the package may be in an archive on a worker.
    stub = spec.loader.get_data(f"{spec.origin}i").decode()
    homes: dict[str, str] = {}
    for line in stub.splitlines():
        if line.startswith("from "):
            _, home, _, name, *_ = line.split()
            homes[name] = f"{package}.{name}" if home == package else home
    vars(module).update(_homes=homes, __all__=sorted(homes))
    module.__class__ = LazyPackage
