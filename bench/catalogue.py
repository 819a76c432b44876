"""Workloads by name: every module in `bench/workloads/` that offers `workload(size)`."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from bench import workloads
from bench.errors import BenchError
from bench.workload import Size, Workload
from penstock.errors import nearest_first


def available(package: ModuleType = workloads) -> list[str]:
    """Return the names of the workloads, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def find(name: str, size: Size = "full", package: ModuleType = workloads) -> Workload:
    """Return the workload of that name, at that size."""
    names = nearest_first(name, available(package))
    if name not in names:
        raise BenchError(
            f'there is no workload "{name}"',
            detail=f"workloads: {', '.join(names)}",
            hint=f"try: python -m bench {names[0]} --quick" if names else None,
        )
    module = importlib.import_module(f"{package.__name__}.{name}")
    made = module.workload(size)
    assert isinstance(made, Workload), f"{module.__name__}.workload(size) must give a Workload"
    return made
