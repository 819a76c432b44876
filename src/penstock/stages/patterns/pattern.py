"""A window step as replicas: what goes where, who does the work, and who puts it together.

    rows → deal → replicas → between → joining_deal → joining → results
                     ↘ late, errors

The answer, the late rows and the accounts (summed over all stages) are those of keyed windows with one
replica, for every pattern and degree. An engine carries the batches, and gives each stage the least watermark
of those before it, after what they gave at that watermark; `lateness` is taken off only behind the last.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.frozen import dataclass
from penstock.operators.choices.patterns import (
    MAP_REDUCE,
    PANED,
    PARALLEL,
    as_pattern,
    most_slices,
    refusal,
)
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import PATTERNS, Windows
from penstock.stages.patterns.dealing import Deal, KeyDeal, PaneDeal, TurnDeal, WindowDeal
from penstock.stages.patterns.in_order import InOrder
from penstock.stages.patterns.parallel import ParallelStage
from penstock.stages.patterns.part_stages import JoinStage, MapStage, PanesJoined, PaneStage, ReduceStage
from penstock.stages.patterns.parts import PARTS
from penstock.stages.protocol import Stage
from penstock.stages.site import Site
from penstock.stages.window_stage import WindowStage
from penstock.timing.windows import TimeWindow


@dataclass(frozen=True, slots=True)
class Pattern:
    """The decomposition of a window step.

    name          keyed, parallel, paned or map_reduce
    deal          rows to replicas
    replicas      as many as the degree
    between       the port of the replicas whose batches go on to `joining`; None when there is none
    joining_deal  those batches to the joining stages, by key
    joining       WLQ, REDUCE, or the stage that puts results in order; () when replicas give results
    """

    name: str
    deal: Deal
    replicas: tuple[Stage, ...]
    between: str | None = None
    joining_deal: Deal | None = None
    joining: tuple[Stage, ...] = ()

    @property
    def keepers(self) -> tuple[tuple[Stage, ...], Deal]:
        """The stages that save state, and the deal whose `heirs` says which of them take up which bucket."""
        if self.between == PARTS and self.joining_deal is not None:
            return self.joining, self.joining_deal
        return self.replicas, self.deal

    def explain(self) -> list[str]:
        """Who gets what, in words."""
        joined = {PARTS: "their parts are put together", OUT: "their results are put in order"}
        lines = [f"{self.name} windows: {self.deal}"]
        if self.between is not None:
            lines.append(f"{joined[self.between]} by {len(self.joining)}: {self.joining_deal}")
        return lines


def decompose(
    op: Windows,
    up: Stream,
    degree: int,
    new_site: Callable[[], Site],
    *,
    pattern: str | None = None,
    numbered: bool = False,
    joining: int = 1,
) -> Pattern:
    """The step as `degree` replicas, by the operator's own pattern unless another is named.

    new_site  called once per stage: each counts in accounts of its own
    numbered  as for WindowStage
    joining   how many stages put parts, or results, together
    """
    assert degree >= 1, f"a step has at least one replica, not {degree}"
    assert joining >= 1, f"at least one stage puts parts together, not {joining}"
    name = pattern or op.pattern
    assert name in PATTERNS, f"the graph let pattern {name!r} pass"
    refused = refusal(name, op, up, numbered=numbered)
    if refused is not None:
        site = new_site()
        raise refused.at(site.step, site.where)
    return _Making(as_pattern(name, op), up, degree, new_site, numbered, joining).made(name)


@dataclass(frozen=True, slots=True)
class _Making:
    """What all patterns are made from."""

    op: Windows
    up: Stream
    degree: int
    new_site: Callable[[], Site]
    numbered: bool
    n_joining: int

    def made(self, name: str) -> Pattern:
        if name == PARALLEL:
            return self.parallel(name)
        if name == PANED:
            return self.in_parts(name, PaneDeal(self._windows(), self.degree), PaneStage, PanesJoined)
        if name == MAP_REDUCE and most_slices(self.op, self.up) == 1:
            return self.in_parts(name, TurnDeal(self.degree), PaneStage, PanesJoined)  # a window is a slice
        if name == MAP_REDUCE:
            return self.in_parts(name, TurnDeal(self.degree), MapStage, ReduceStage)
        return self.keyed(name)

    def keyed(self, name: str) -> Pattern:
        deal = KeyDeal(self.up.schema, self.up.key, self.degree)
        stages = (
            WindowStage(self.op, self.up, self.new_site(), numbered=self.numbered) for _ in range(self.degree)
        )
        return Pattern(name, deal, tuple(stages))

    def parallel(self, name: str) -> Pattern:
        deal = WindowDeal(self._windows(), self.up.schema, self.up.key, self.degree)
        replicas = tuple(
            ParallelStage(self.op, self.up, self.new_site(), deal, number, numbered=self.numbered)
            for number in range(self.degree)
        )
        results = self.op.outputs({IN: self.up})[OUT].schema
        back = KeyDeal(results, self.up.key, self.n_joining)
        ordering = tuple(InOrder(self.op, self.up) for _ in range(self.n_joining))
        return Pattern(name, deal, replicas, OUT, back, ordering)

    def in_parts(
        self, name: str, deal: Deal, part: type[PaneStage | MapStage], join: type[JoinStage]
    ) -> Pattern:
        replicas = [
            part(self.op, self.up, self.new_site(), numbered=self.numbered) for _ in range(self.degree)
        ]
        joining = [
            join(self.op, self.up, self.new_site(), numbered=self.numbered) for _ in range(self.n_joining)
        ]
        parts = replicas[0].format
        back = KeyDeal(parts.schema, parts.key, self.n_joining)
        return Pattern(name, deal, tuple(replicas), PARTS, back, tuple(joining))

    def _windows(self) -> list[TimeWindow]:
        resolved = self.op.resolved(self.up)
        return [window for _, window in resolved.windows if isinstance(window, TimeWindow)]
