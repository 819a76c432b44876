"""Channels between tasks: which outputs send rows where, and in which order tasks read them.

How rows reach the replicas of a step:

one task                   everything to it
by key                     to the replica of the key's bucket; where replicas rescale, to its owner
decomposed windows         as the pattern's partitioner says
broadcast                  a copy to each
forward, equal widths      replica to replica
otherwise                  batches round-robin; in rounds, equal shares of each round

WindFlow's two other composition rules (5.3) put partitioning tasks between: "dedicated" one behind each
producing task, "centralised" one for all of them. The order of rows behind round-robin replicas is restored
by sequence numbers (`channels.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from penstock.engines.local.build import ExecutionGraph, Replicas, TaskBuilder, is_forward
from penstock.engines.local.channels import (
    Channel,
    EvenSplitOutput,
    Output,
    PartitionedOutput,
    RoundRobinOutput,
)
from penstock.engines.local.dispatch import Dispatcher
from penstock.engines.local.options import Settings
from penstock.engines.local.task_groups import Role, can_rescale, is_broadcast, is_keyed
from penstock.engines.local.tasks.chain import CollectedRows, SinkStep
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.operators.op import OUT
from penstock.plan.plan import Input, Ref

if TYPE_CHECKING:
    from penstock.stages.patterns.pattern import Partitioner

MAX_ROWS = 4_000_000
"""Rows that wait in one channel, however few batches they are in."""


class ChannelBuilder:
    """Connects the tasks of an execution graph."""

    def __init__(self, tasks: TaskBuilder, dispatcher: Dispatcher, settings: Settings) -> None:
        self._tasks, self._graph, self._plan = tasks, tasks.graph, tasks.graph.plan
        self._dispatcher, self._progress = dispatcher, tasks.progress
        self._queue_size, self._composition = settings.queue_size, settings.composition
        self._round_groups: dict[int, frozenset[int]] = {}  # task -> the round groups of the rows it gets
        # Group whose tasks forward sequence numbers -> replicas that are active when the run begins.
        self._sequenced: dict[int, int] = {}

    def connect(self) -> ExecutionGraph:
        """Add all channels and return the graph, ready to run."""
        feedback: list[tuple[Replicas, Replicas, Ref, Input]] = []
        for replicas in list(self._graph.replicas):
            edges = [(port, ref) for port in replicas.group.head.inputs for ref in port.feeds]
            if replicas.group.role is Role.MERGE:
                self._connect_merge(replicas)
                edges = []
            for port, ref in edges:
                for producer in self._producers(ref):
                    if port.control and producer.group.number >= replicas.group.number:
                        feedback.append((producer, replicas, ref, port))
                    else:
                        self._link(producer, replicas, ref, port)
            self._assign_round_groups(replicas)
        for producer, replicas, ref, port in feedback:
            self._link(producer, replicas, ref, port, feedback=True)
        for ref in self._plan.collects:
            self._connect_collection(ref)
        if self._graph.assignments:
            from penstock.engines.local.elastic.rescale import install_barriers

            install_barriers(self._graph, self._dispatcher, in_rounds=self._progress.in_rounds)
        for task in self._graph.tasks:
            task.on_connected(self._dispatcher.now)
            if all(channel.feedback for channel in task.outs):
                sinks = [chained.step.name for chained in task.chain if isinstance(chained, SinkStep)]
                for round_group in self._round_groups[task.number]:
                    self._progress.add_terminal(round_group, task, sinks)
        return self._graph

    def _producers(self, ref: Ref) -> list[Replicas]:
        """Return the groups whose tasks emit rows on a port; decomposed windows do in the merge."""
        running = [replicas for replicas in self._graph.replicas if replicas.group.runs(ref.step)]
        if ref.port == OUT:
            return [replicas for replicas in running if not replicas.group.emits_partials_of(ref.step)]
        return running

    def _connect_merge(self, merge: Replicas) -> None:
        """Connect the two halves of decomposed windows."""
        step = merge.group.head
        pattern = self._graph.patterns[step.name]
        assert pattern.between is not None, "decomposed windows have partial results"
        assert pattern.final_partitioner is not None, "partial results are partitioned"
        (parallel,) = (
            replicas for replicas in self._graph.replicas if replicas.group.emits_partials_of(step.name)
        )
        for task in parallel.tasks:
            channels = [self._channel(task, reader, step.inputs[0]) for reader in merge.tasks]
            output = PartitionedOutput(pattern.between, channels, copy.deepcopy(pattern.final_partitioner))
            _attach(task, step.name, pattern.between, output)

    def _link(
        self, producer: Replicas, consumer: Replicas, ref: Ref, port: Input, *, feedback: bool = False
    ) -> None:
        """Add the channels from the tasks of one group to those of another.

        If the composition rule asks for it, there are partitioning tasks between them.
        """
        forward, head = is_forward(producer, consumer), consumer.group.head
        if self._composition != "combined" and len(consumer.tasks) > 1 and not forward:
            width = len(producer.tasks) if self._composition == "dedicated" else 1
            partitioners = self._tasks.add_forwarding(ref, width)
            self._link(producer, partitioners, ref, port)
            self._assign_round_groups(partitioners)
            producer = partitioners
            forward = is_forward(producer, consumer)
        # A single task sends batches round-robin, so that their order can be restored.
        sequenced = (
            not self._progress.in_rounds
            and len(producer.tasks) == 1 < len(consumer.tasks)
            and consumer.group.role is Role.WHOLE
            and len(head.data_feeds) == 1
            and not is_broadcast(head)
            and not is_keyed(head)
        )
        for replica, task in enumerate(producer.tasks):
            readers: Sequence[Task] = [consumer.tasks[replica]] if forward else consumer.tasks
            channels = [self._channel(task, reader, port, feedback=feedback) for reader in readers]
            output = self._output(ref, consumer, channels, sequenced=sequenced)
            _attach(task, ref.step, ref.port, output)
            if isinstance(output, RoundRobinOutput) and head.degree.elastic:
                self._graph.elastic_outputs.setdefault(head.name, []).append(output)
        n_active = self._sequenced.get(producer.group.number)
        if n_active is not None and not forward and not port.control:
            for reader in consumer.tasks:
                assert isinstance(reader, InputTask), "sequence numbers come through channels"
                reader.keep_order(reader.channels[-len(producer.tasks) :], n_active)
        if sequenced:
            n_active = head.degree.least
        elif not forward or len(head.data_feeds) > 1:
            n_active = None
        if n_active is not None:
            self._sequenced[consumer.group.number] = n_active
            for task in consumer.tasks:
                assert isinstance(task, InputTask), "sequence numbers go through stages"
                task.forwards_sequence = True

    def _output(
        self, ref: Ref, consumer: Replicas, channels: Sequence[Channel], *, sequenced: bool
    ) -> Output:
        """Return the output of one producing task: how it distributes rows over these channels."""
        group, step = consumer.group, self._plan[ref.step]
        head, schema = group.head, step.outputs[ref.port].schema
        batch_size = None if self._progress.in_rounds else step.op.batch_size
        if len(channels) == 1 or is_broadcast(head):
            return Output(ref.port, channels, batch_size)
        if group.role is Role.PARALLEL:
            partitioner: Partitioner = copy.deepcopy(self._graph.patterns[head.name].partitioner)
            return PartitionedOutput(ref.port, channels, partitioner, batch_size)
        if is_keyed(head):
            from penstock.stages.patterns.pattern import KeyPartitioner

            by_key = KeyPartitioner(schema, head.up.key, group.width)
            if not can_rescale(group):
                return PartitionedOutput(ref.port, channels, by_key, batch_size)
            from penstock.engines.local.elastic.rescale import BucketAssignment, BucketOutput, Rescaler

            self._progress.rescaler = self._progress.rescaler or Rescaler()
            initial = BucketAssignment(head.name, self._progress.rescaler, head.degree.least, group.width)
            assignment = self._graph.assignments.setdefault(group.number, initial)
            return BucketOutput(ref.port, channels, by_key, batch_size, assignment=assignment)
        divide = EvenSplitOutput if self._progress.in_rounds else RoundRobinOutput
        return divide(ref.port, channels, batch_size, sequenced=sequenced, n_active=head.degree.least)

    def _channel(self, writer: Task, reader: Task, port: Input, *, feedback: bool = False) -> Channel:
        # Why: a bound on a feedback channel could block the cycle for ever.
        capacity = inf if feedback else self._queue_size
        rows = MAX_ROWS if capacity < inf else inf
        control = port.control
        channel = Channel(self._dispatcher, capacity, rows, port.port, control=control, feedback=feedback)
        channel.writer, channel.reader = writer, reader
        channel.round_groups = self._round_groups.get(writer.number, frozenset())
        writer.outs.append(channel)
        reader.channels.append(channel)
        return channel

    def _assign_round_groups(self, replicas: Replicas) -> None:
        """Note which sources' rounds pass through the tasks of a group; its inputs are connected."""
        for task in replicas.tasks:
            if isinstance(task, SourceTask):
                self._round_groups[task.number] = frozenset({task.round_group})
                self._progress.add_source(task.round_group, task.reader.step.name)
            else:
                data = [channel.round_groups for channel in task.channels if not channel.control]
                self._round_groups[task.number] = frozenset().union(*data)

    def _connect_collection(self, ref: Ref) -> None:
        """Collect the rows of a port, behind a task of its own if several replicas emit them."""
        collected = self._graph.collections[ref] = CollectedRows(
            self._plan[ref.step].outputs[ref.port].schema
        )
        producers = self._producers(ref)
        if sum(len(replicas.tasks) for replicas in producers) == 1:
            (chained,) = producers[0].chained_steps(ref.step)
        else:
            collector = self._tasks.add_forwarding(ref, 1)
            port = Input("in", (ref,), self._plan[ref.step].outputs[ref.port])
            for producer in producers:
                self._link(producer, collector, ref, port)
            self._assign_round_groups(collector)
            (chained,) = collector.tasks[0].chain
        chained.add_target(ref.port, collected.feed)


def _attach(task: Task, step: str, port: str, output: Output) -> None:
    """Let the rows on a port of a step leave a task through an output."""
    chained = next(chained for chained in task.chain if chained.step.name == step)
    chained.outputs.append(output)
    chained.add_target(port, output.send)
