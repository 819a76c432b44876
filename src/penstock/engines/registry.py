"""Find an engine by name: ours, and any that another package offers as a `penstock.engines` entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import EngineError, nearest_first
from penstock.lazy import load_module

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from penstock.engines.protocol import Engine

GROUP = "penstock.engines"
OURS = {
    "local": "penstock.engines.local.engine:LocalEngine",
    "reference": "penstock.engines.reference.engine:ReferenceEngine",
    "spark": "penstock.engines.spark.engine:SparkEngine",
}


def find_engine(name: str) -> Engine:
    """The engine of that name; an error that lists the others if there is none."""
    if name in OURS:
        module, _, attribute = OURS[name].partition(":")
        engine: Engine = getattr(load_module(module), attribute)()
        return engine
    for offered in _offered().select(name=name):
        found: Engine = offered.load()()
        return found
    names = nearest_first(name, engine_names())
    raise EngineError(
        f'there is no engine "{name}"',
        detail=f"available: {', '.join(names)}",
        hint=f'use engine="{names[0]}"',
    )


def engine_names() -> list[str]:
    """The names of the engines that can be found here."""
    return sorted({*OURS, *(offered.name for offered in _offered())})


def _offered() -> EntryPoints:
    """What other packages offer; asked for only when the name is none of ours, for it looks into them all."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
