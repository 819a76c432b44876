"""The execution graph of a run: its tasks, by group, and what must be opened, closed, counted or rescaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.engines.local.channels.output import EvenSplitOutput, RoundRobinOutput
from penstock.engines.local.tasks.chain import ChainedStep, CollectedRows
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.groups import Role, TaskGroup
from penstock.engines.sinks import SinkWriter
from penstock.engines.sources import SourceReader
from penstock.frozen import dataclass
from penstock.operators.op import Routing
from penstock.operators.process import Process
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from penstock.engines.local.elastic.rescale import BucketAssignment
    from penstock.stages.patterns.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Replicas:
    """A task group with its tasks, one per replica."""

    group: TaskGroup
    tasks: list[Task]

    def chained_steps(self, step: str) -> list[ChainedStep]:
        """Returns the chained steps of a step, one per task."""
        return [chained for task in self.tasks for chained in task.chain if chained.step.name == step]


@dataclass(slots=True)
class ExecutionGraph:
    """All tasks of a run.

    tasks            in topological order; those that only partition or collect come last
    replicas         the same tasks by group
    patterns         decomposed window step -> its stages and partitioners
    elastic_outputs  elastic step without keys -> the outputs that distribute rows to its replicas
    assignments      number of a group with keyed state that can rescale -> which replica owns which bucket
    """

    plan: Plan
    tasks: list[Task] = field(default_factory=list)
    replicas: list[Replicas] = field(default_factory=list)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    readers: dict[str, SourceReader] = field(default_factory=dict)
    writers: dict[str, SinkWriter] = field(default_factory=dict)
    collections: dict[Ref, CollectedRows] = field(default_factory=dict)
    elastic_outputs: dict[str, list[RoundRobinOutput | EvenSplitOutput]] = field(default_factory=dict)
    assignments: dict[int, BucketAssignment] = field(default_factory=dict)

    def accounts(self) -> Mapping[str, Accounts]:
        """Returns what became of the rows of every step so far.

        Rows that were sent to a process operator after it had ended count as unrouted.
        """
        accounts = {step.name: Accounts() for step in self.plan}
        for task in self.tasks:
            for chained in task.chain:
                accounts[chained.step.name].add(chained.total_accounts())
            if isinstance(task, InputTask) and isinstance(task.steps[0].op, Process):
                unread = sum(channel.unread for channel in task.channels if not channel.feedback)
                accounts[task.steps[0].name].rows_in += unread
                accounts[task.steps[0].name].unrouted += unread
        return accounts


def is_forward(producer: Replicas, consumer: Replicas) -> bool:
    """Returns whether each replica sends only to the replica with its own number."""
    if len(producer.tasks) != len(consumer.tasks) or len(consumer.tasks) == 1:
        return False
    return consumer.group.role is Role.PARTITION or consumer.group.head.routing is Routing.FORWARD
