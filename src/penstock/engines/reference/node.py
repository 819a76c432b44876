"""Nodes: one for each step, run round by round, and the frontiers of the streams between them.

A node sees all its rows of a round at once, with the watermark before the round, which decides what is late,
and the watermark after it, which decides what is emitted. Frontiers are written again here, apart from
`engines/frontiers.py`: the judge shares no code with what it judges. Imports no stage and no kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.reference.functions import FailedRows
from penstock.engines.rows import TimedRow
from penstock.frozen import dataclass
from penstock.operators.op import IN
from penstock.plan.plan import Plan, Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

Outputs = dict[str, list[TimedRow]]


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a stream has progressed: no more rows before `watermark`; idle; over, no more rows at all."""

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Frontier(AFTER_ALL, over=True)


def merge_frontiers(frontiers: Iterable[Frontier], before: Frontier) -> Frontier:
    """Return the frontier of merged streams: the least watermark of those not idle, never going back."""
    frontiers = list(frontiers)
    active = [frontier.watermark for frontier in frontiers if not frontier.idle]
    watermark = max(before.watermark, min(active)) if active else before.watermark
    return Frontier(watermark, idle=not active, over=all(frontier.over for frontier in frontiers))


@dataclass(frozen=True, slots=True)
class RoundInput:
    """What a node sees in one round.

    rows    by input port
    before  the watermark that decides which rows are late
    after   the watermark that decides what is emitted
    over    the input ports on which no more rows can come
    """

    rows: Mapping[str, list[TimedRow]]
    before: float
    after: float
    over: frozenset[str]

    @property
    def only(self) -> list[TimedRow]:
        """Return the rows of a node with one input."""
        return self.rows[IN]


@dataclass(frozen=True, slots=True)
class Site:
    """The context of a node: its step, and what it reports to."""

    step: Step
    plan: Plan
    clock: Clock
    accounts: Accounts
    failed_rows: FailedRows


class Node(ABC):
    """One step of a running plan."""

    replicas = 1
    """How many times each row comes in; more than one only where rows are broadcast."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.accounts, self.failed_rows = site.accounts, site.failed_rows

    @abstractmethod
    def round(self, inputs: RoundInput) -> Outputs:
        """Process the rows of a round and return what is emitted, by output port."""

    def forward(self, frontier: Frontier) -> Frontier:
        """Return what can be promised downstream when this is promised upstream."""
        return frontier

    def close(self) -> None:
        """Release what the node holds; most hold nothing."""
        return


def output_frontier(frontier: Frontier, by: int) -> Frontier:
    """Return the frontier of a step whose output trails its input by up to `by` microseconds."""
    return Frontier(frontier.watermark - by, frontier.idle, frontier.over)
