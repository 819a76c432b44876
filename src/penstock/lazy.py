"""Packages whose names are loaded when somebody asks for them (PEP 562).

A program uses few of the names that Penstock has, and starts sooner without the modules of the others. A
package lists its names twice, in a block for type checkers and in the table that it gives to `defer`; a test
compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType


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


def defer(package: str, homes: Mapping[str, str]) -> None:
    """Makes a package load its names on demand; `homes` maps a module to the names in it."""
    module = sys.modules[package]
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    vars(module).update(_homes=home_of, __all__=sorted(home_of))
    module.__class__ = LazyPackage
