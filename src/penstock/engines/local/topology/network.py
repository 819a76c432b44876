"""All nodes of a run, by group, and what they hold. `building.py` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.engines.local.channels.output import EvenSplitOutput, RoundRobinOutput
from penstock.engines.local.rescale.rescale import KeyGroupAssignment, Rescaler
from penstock.engines.local.tasks.chain import ChainedStep, CollectedRows
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.tasks import TaskGroup
from penstock.engines.sinks import SinkWriter
from penstock.engines.sources import SourceReader
from penstock.frozen import dataclass
from penstock.operators.process import Process
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from penstock.stages.patterns.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Replicas:
    """A group with its nodes."""

    group: TaskGroup
    nodes: list[Task]

    def chain(self, step: str) -> list[ChainedStep]:
        """The chain of a step, one per node."""
        return [chained for node in self.nodes for chained in chain_of(node) if chained.step.name == step]


@dataclass(slots=True)
class ExecutionGraph:
    """All nodes of a run, and what they hold that must be opened, closed, counted or taken.

    dealers  elastic step -> the outputs that deal batches in turn, or slices, to its replicas
    moves    of replicas with state by key
    leaders  the number of a group whose state moves -> who says where to
    """

    plan: Plan
    replicas: list[Replicas] = field(default_factory=list)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    readers: dict[str, SourceReader] = field(default_factory=dict)
    writers: dict[str, SinkWriter] = field(default_factory=dict)
    collections: dict[Ref, CollectedRows] = field(default_factory=dict)
    elastic_outputs: dict[str, list[RoundRobinOutput | EvenSplitOutput]] = field(default_factory=dict)
    rescaler: Rescaler = field(default_factory=Rescaler)
    assignments: dict[int, KeyGroupAssignment] = field(default_factory=dict)

    @property
    def tasks(self) -> list[Task]:
        """All nodes, feeds first."""
        return [node for bench in self.replicas for node in bench.nodes]

    def chain(self) -> Iterator[ChainedStep]:
        """All chain."""
        for node in self.tasks:
            yield from chain_of(node)

    def accounts(self) -> Mapping[str, Accounts]:
        """What became of the rows of every step so far; what was sent to an ended loop is unrouted."""
        found = {step.name: Accounts() for step in self.plan}
        for chained in self.chain():
            found[chained.step.name].add(chained.total_accounts())
        for node in self.tasks:
            if isinstance(node, InputTask) and isinstance(node.steps[0].op, Process):
                unread = sum(channel.unread for channel in node.channels if not channel.feedback)
                found[node.steps[0].name].rows_in += unread
                found[node.steps[0].name].unrouted += unread
        return found


def chain_of(node: Task) -> list[ChainedStep]:
    """The chain of a node."""
    chain: list[ChainedStep] = getattr(node, "chain", [])
    return chain
