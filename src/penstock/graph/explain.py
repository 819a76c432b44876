"""What a graph says of itself: in words, as data, as pictures, and in WindFlow's algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.graph import run as running
from penstock.graph.steps import Steps
from penstock.plan.plan import Plan, Step

if TYPE_CHECKING:
    from penstock.blocks import PBB, Composition, Derivation
    from penstock.engines.protocol import Engine


class Explained(ABC):
    """The part of `PipeGraph` that runs nothing."""

    name: str
    composition: Composition
    _steps: Steps

    @abstractmethod
    def plan(self) -> Plan:
        """The checked plan."""

    def blocks(self, *, composition: Composition | None = None) -> PBB:
        """The graph as a term of WindFlow's building-block algebra; `blocks.count(term)` measures it."""
        return self.derivation(composition=composition).term

    def derivation(self, *, composition: Composition | None = None) -> Derivation:
        """How the term came about: which rule made which part of it."""
        return _derived(tuple(self._steps), composition or self.composition)

    def explain(self, engine: str | Engine | None = None) -> str:
        """Say what the graph does: steps and schemas, building blocks, the engine's choices and why."""
        from penstock.plan.explain import explain_plan

        return explain_plan(**self._explained(engine))

    def explain_dict(self, engine: str | Engine | None = None) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        from penstock.plan.explain import explain_dict

        return explain_dict(**self._explained(engine))

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        from penstock.plan.drawing.mermaid import to_mermaid

        return to_mermaid(self._drawn())

    def to_svg(self, path: str | Path | None = None) -> str:
        """The graph as an SVG picture, also written to `path` if given."""
        from penstock.plan.drawing.svg import to_svg

        picture = to_svg(self._drawn())
        if path is not None:
            Path(path).write_text(picture, encoding="utf-8")
        return picture

    def _explained(self, engine: str | Engine | None) -> dict[str, Any]:
        from penstock.blocks import tree

        plan = self.plan()
        derived = plan.derived or _derived(plan.steps, self.composition)
        kept = {step.name for step in plan}
        return {
            "plan": plan,
            "blocks": tree(derived.term),
            "derivation": str(derived).splitlines(),
            "engine": running.engine_named(engine).explain(plan) if engine is not None else (),
            "unused": [step.name for step in self._steps if step.name not in kept],
        }

    def _drawn(self) -> Plan:
        """Everything, sink or not: a picture of an unfinished graph is useful too."""
        return Plan(self.name, tuple(self._steps))


def _derived(steps: tuple[Step, ...], composition: Composition) -> Derivation:
    """The algebra is loaded when somebody asks for it: most runs do not."""
    from penstock.plan.check import derivation

    return derivation(steps, composition=composition)
