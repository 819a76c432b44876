"""The public names: a change of this list is a change for every user."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import penstock as ps
from tests.conftest import Golden

MODULES = ("blocks", "connectors", "events", "options", "read", "schedulers", "spark", "testing", "write")


def public(module: types.ModuleType) -> list[str]:
    """Returns the names a module offers: not private, and not a submodule that happens to be loaded."""
    return sorted(
        name
        for name in dir(module)
        if not name.startswith("_")
        and (name in MODULES or not isinstance(getattr(module, name), types.ModuleType))
    )


def verbs(kind: type) -> list[str]:
    """The public methods and properties of a class."""
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def test_the_public_names_are_those_on_the_list(golden: Golden) -> None:
    lines = [f"penstock.{name}" for name in public(ps) if name not in ("annotations",)]
    lines += [f"penstock.read.{name}" for name in ps.read.__all__]
    lines += [f"penstock.write.{name}" for name in ps.write.__all__]
    lines += [f"penstock.connectors.{name}" for name in ps.connectors.__all__]
    lines += [f"penstock.schedulers.{name}" for name in ps.schedulers.__all__]
    lines += [f"penstock.testing.{name}" for name in public(ps.testing)]
    lines += [f"PipeGraph.{name}" for name in verbs(ps.PipeGraph)]
    lines += [f"MultiPipe.{name}" for name in verbs(ps.MultiPipe)]
    golden("public_names.txt", "\n".join(lines))


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_is_there_on_a_fresh_import(name: str) -> None:
    program = f"import penstock as ps; assert ps.{name}.__name__ == 'penstock.{name}'"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_says_what_it_is() -> None:
    for name in public(ps):
        assert getattr(ps, name).__doc__, name
    for name in (*verbs(ps.PipeGraph), *verbs(ps.MultiPipe)):
        kind = ps.PipeGraph if hasattr(ps.PipeGraph, name) else ps.MultiPipe
        member = getattr(kind, name)
        if isinstance(member, types.MemberDescriptorType):  # a plain attribute is told of by its class
            assert f"    {name}  " in (member.__objclass__.__doc__ or ""), name
        else:
            assert member.__doc__, name


def test_the_version_is_that_of_the_package() -> None:
    assert ps.__version__.count(".") == 2
