"""Names of a package that are looked up when somebody asks for them (PEP 562).

A program uses few of the names that Penstock has, and starts the sooner for not loading the files of the
others. A package lists its names twice, in a block for type checkers and in the table that it gives to
`defer`; a test holds the two together.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType


def load_module(name: str) -> ModuleType:
    """A module with all that it imports, without a search for garbage meanwhile.

    What modules are made of stays, and the collector would look through it again and again as it grows.
    """
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()


class NoSuchName(AttributeError):
    """There is no such name; the one that is most alike is looked for when somebody reads the message.

    Whoever imports a file from a package asks for its name first, in vain, and must not wait for that.
    """

    def __init__(self, package: LazyPackage, name: str) -> None:
        super().__init__(f"module {package.__name__!r} has no attribute {name!r}")
        self._package, self._asked = package, name

    def __str__(self) -> str:
        from difflib import get_close_matches

        known = {each.lower(): each for each in self._package._homes}
        near = get_close_matches(self._asked.lower(), known, 1)
        return super().__str__() + "".join(f"; did you mean {known[each]!r}?" for each in near)


class LazyPackage(ModuleType):
    """A package that finds its names on demand.

    Any number of threads may ask at once: a file is loaded under its own lock, and a name is always the
    same object.
    """

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> object:
        home = self._homes.get(name)
        if home is None:
            raise NoSuchName(self, name)
        module = load_module(home)
        is_file = home == f"{self.__name__}.{name}" and not hasattr(module, name)
        found: object = module if is_file else getattr(module, name)
        super().__setattr__(name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a file puts it into its package, where a name may be that of its file: `sum` is in sum.py.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Functions that mention `ps` travel to Spark's workers, and it with them: by name, as any module.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*(name for name in vars(self) if name.startswith("__")), *self._homes})


def defer(package: str, homes: Mapping[str, str]) -> None:
    """Make a package find its names; `homes` has them, one after another, by the module that they are in."""
    module = sys.modules[package]
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    vars(module).update(_homes=home_of, __all__=sorted(home_of))
    module.__class__ = LazyPackage
