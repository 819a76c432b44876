"""A node: one step at work, round by round, and what it knows of the streams around it.

A run is a sequence of rounds; round n carries the n-th batch of every source through all steps. A node
sees all its rows of a round at once, with the watermark before the round, which judges them, and the
watermark after it, which says what leaves.
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
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL

Outputs = dict[str, list[TimedRow]]


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a stream has come.

    watermark  no more rows with a time before this
    idle       silent for so long that others need not wait for it
    over       no more rows at all
    """

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Frontier(AFTER_ALL, over=True)


def merge_frontiers(frontiers: Iterable[Frontier], before: Frontier) -> Frontier:
    """The mark of streams that flow together: the least watermark of those not idle, never going back."""
    frontiers = list(frontiers)
    awake = [frontier.watermark for frontier in frontiers if not frontier.idle]
    watermark = max(before.watermark, min(awake)) if awake else before.watermark
    return Frontier(watermark, idle=not awake, over=all(frontier.over for frontier in frontiers))


@dataclass(frozen=True, slots=True)
class RoundInput:
    """What a node sees in one round.

    rows    by input port
    before  the watermark that judges the rows
    after   the watermark that says what leaves
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
    """A node's place: its step, and what it reports to."""

    step: Step
    plan: Plan
    clock: Clock
    accounts: Accounts
    failed_rows: FailedRows


class Node(ABC):
    """One step at work."""

    replicas = 1
    """How many times each row comes in; more than one only where rows are broadcast."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.accounts, self.failed_rows = site.accounts, site.failed_rows

    @abstractmethod
    def round(self, given_round: RoundInput) -> Outputs:
        """Take the rows of a round in and give what leaves, by output port."""

    def forward(self, frontier: Frontier) -> Frontier:
        """Return what can be promised downstream when this is promised upstream."""
        return frontier

    def close(self) -> None:
        """Release what the node holds; most hold nothing."""
        return


def output_frontier(frontier: Frontier, by: int) -> Frontier:
    """Return the mark of a step that gives rows up to `by` microseconds behind its input's watermark."""
    return Frontier(frontier.watermark - by, frontier.idle, frontier.over)
