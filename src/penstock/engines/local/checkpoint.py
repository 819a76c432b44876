"""Checkpoints while rows flow: every node saves its state at the end of the same round (aligned barriers).

Rounds are numbered in band, so the barrier is there already: a node that has carried round n through has all
rows of it and none of the next. When all nodes have saved, all sinks have committed the round too, and one
manifest says so. After a crash the rounds behind it are done again, under the same numbers; what sinks have
committed of them they do not show twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.crash_points import PROCESSED, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, Manifest, convert_state
from penstock.engines.checkpoint.state_files import StateHandle, state_size
from penstock.engines.frontiers import Frontier
from penstock.engines.local.rescale.rescale import initial_owners
from penstock.engines.local.tasks.chain import ChainedStep, StageStep
from penstock.engines.local.tasks.source import SourceStep
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.engines.local.topology.network import ExecutionGraph, chain_of
from penstock.events import StateSaved
from penstock.stages.patterns.partitioners import Partitioner
from penstock.stages.rows.batch import Ints
from penstock.stages.stage import Stage
from penstock.stages.window.stage import WindowStage
from penstock.timing.watermark import BEFORE_ALL

State = dict[str, dict[int, StateHandle]]
NEVER = -1
"""The round that is saved next, after a failure."""


class CheckpointCoordinator:
    """The checkpoint of a run.

    every  microseconds between two snapshots, by the run's clock; there is one under way at most
    """

    def __init__(self, checkpoint: Checkpoint, clock: Clock, *, every: int) -> None:
        self._checkpoint, self._clock, self._every = checkpoint, clock, every
        self.done = checkpoint.latest_manifest()
        if self.done.drained:
            raise checkpoint.drained_error()
        self._graph: ExecutionGraph
        self._lock = threading.Lock()
        self._storing = threading.Lock()  # no file is let go between its writing and its being known
        self._last = clock.now()
        self._round: int | None = None
        self._ended: set[int] = set()
        self._awaited: set[int] = set()
        self._known = _Known(self.done)
        self._later: list[_Known] = []  # what ended nodes left, while a snapshot from before is under way

    def restore(self, graph: ExecutionGraph) -> None:
        """Let all nodes go on from where the run was."""
        self._graph = graph
        for reader in graph.readers.values():
            name = reader.step.name
            position = self.done.positions.get(name, (0, 0))
            watermark = self.done.source_watermarks.get(name, BEFORE_ALL)
            reader.resume(position, watermark, self._checkpoint.journal)
        for node in graph.tasks:
            for chained in chain_of(node):
                frontier = Frontier(self.done.step_watermarks.get(chained.step.name, BEFORE_ALL))
                if isinstance(chained, StageStep):
                    chained.frontier = frontier
                    self._resume_showing(chained.stage)
                if isinstance(node, InputTask) and chained.step is node.steps[0]:
                    node.frontier = frontier
        files = self._checkpoint.files
        for step in self.done.state:
            heirs = list(_heirs(graph, step))
            for form in {stage.form for stage, _ in heirs if isinstance(stage, WindowStage)}:
                self._known.state[step] = dict(convert_state(graph.plan[step], self.done, files, form))
            pieces = files.read(self._known.state[step], step)
            for stage, inherits in heirs:
                stage.restore({bucket: piece for bucket, piece in pieces.items() if inherits(bucket)})

    def _resume_showing(self, stage: Stage) -> None:
        """Show open windows as often as if there had been no end; also if the clock has been put back."""
        if isinstance(stage, WindowStage) and stage.site.step in self.done.early_fired_at:
            stage.fired_at = min(self.done.early_fired_at[stage.site.step], stage.fired_at)

    def begin(self, number: int) -> None:
        """The first source begins a round: is its end to be saved?"""
        now = self._clock.now()
        with self._lock:
            if self._round is None and now - self._last >= self._every:
                self._round, self._last = number, now
                self._awaited = {node.number for node in self._graph.tasks} - self._ended
                self._settle()

    def complete_round(self, node: Task, number: int) -> StateSaved | None:
        """A node has carried a round through: save what it knows if this is the one."""
        if number != self._round:
            return None
        with self._storing:
            found = self._saved(node, number)
            with self._lock:
                self._known.add(found)
        return self._report(node)

    def end_task(self, node: Task, *, failed: bool) -> StateSaved | None:
        """A node has ended: what it knows now is all. After a failure nothing is saved any more."""
        if failed:
            self._round = NEVER
            return None
        with self._storing:
            found = self._saved(node, node.round - 1)
            with self._lock:
                self._ended.add(node.number)
                # One that is waited for has come to its end before the round at hand, and belongs to it.
                if node.number in self._awaited:
                    self._known.add(found)
                else:
                    self._later.append(found)
        return self._report(node)

    def end(self, rounds: int, *, drained: bool) -> StateSaved:
        """All nodes have ended after the same round."""
        self._settle()
        return self._commit(rounds, drained=drained)

    def _report(self, node: Task) -> StateSaved | None:
        """Commit the round at hand, if all nodes have saved it."""
        with self._lock:
            if node.number not in self._awaited or self._round in (None, NEVER):
                return None
            self._awaited.discard(node.number)
            number = self._round
            if self._awaited or number is None:
                return None
        if all(reader.frontier.over for reader in self._graph.readers.values()):
            self._round = None  # the run is about to end, and is saved then
            return None
        pass_crash_point(PROCESSED)
        event = self._commit(number + 1, drained=False)
        self._round = None
        return event

    def _saved(self, node: Task, number: int) -> _Known:
        found, pieces = _Known(Manifest()), {}
        for chained in chain_of(node):
            found.note(chained)
            if isinstance(chained, StageStep):
                pieces[chained.step.name] = dict(chained.stage.snapshot())
        pieces = {step: each for step, each in pieces.items() if each}
        if pieces:
            found.state = self._checkpoint.files.write(number + 1, str(node.number), pieces)
        return found

    def n_written(self, sink: str) -> int:
        """The rows that the runs before this one have written."""
        return int(self.done.accounts.get(sink, {}).get("rows_out", 0))

    def _so_far(self) -> dict[str, Accounts]:
        """The accounts of all runs of this checkpoint."""
        found = {name: Accounts(**each) for name, each in self.done.accounts.items()}
        for name, each in self._graph.accounts().items():
            found.setdefault(name, Accounts()).add(each)
        return found

    def _settle(self) -> None:
        later, self._later = self._later, []
        for found in later:
            self._known.add(found)

    def _commit(self, rounds: int, *, drained: bool) -> StateSaved:
        accounts = {name: asdict(each) for name, each in self._so_far().items()}
        with self._storing:
            with self._lock:
                manifest = self._known.manifest(rounds, accounts, drained=drained)
                waiting = {name for found in self._later for name in found.files()}
            nbytes = self._checkpoint.commit(manifest, waiting)
        return StateSaved(self._clock.now(), rounds - 1, nbytes, *state_size(manifest.state))


class _Known:
    """How far sources and steps have come, and where their state is."""

    def __init__(self, done: Manifest) -> None:
        self.positions = dict(done.positions)
        self.watermarks = dict(done.source_watermarks)
        self.reached = dict(done.step_watermarks)
        self.state: State = {step: dict(places) for step, places in done.state.items()}
        self.shown = dict(done.early_fired_at)

    def note(self, chained: ChainedStep) -> None:
        """What a chained has come to."""
        if isinstance(chained, SourceStep):
            self.positions[chained.step.name] = chained.reader.position
            self.watermarks[chained.step.name] = chained.reader.watermark
        if isinstance(chained, StageStep):
            self.reached[chained.step.name] = chained.frontier.watermark
            if isinstance(chained.stage, WindowStage) and chained.stage.early is not None:
                self.shown[chained.step.name] = chained.stage.fired_at

    def add(self, newer: _Known) -> None:
        """Take over what is newer."""
        self.positions |= newer.positions
        self.watermarks |= newer.watermarks
        self.reached |= newer.reached
        for step, places in newer.state.items():
            self.state.setdefault(step, {}).update(places)
        for step, at in newer.shown.items():
            self.shown[step] = max(at, self.shown.get(step, at))

    def files(self) -> Iterator[str]:
        """The files that its state is in."""
        return (place.file for places in self.state.values() for place in places.values())

    def manifest(self, rounds: int, accounts: dict[str, dict[str, Any]], *, drained: bool) -> Manifest:
        """All of it, in a form that stays."""
        state = {step: dict(places) for step, places in self.state.items()}
        watermarks, reached, shown = _begun(self.watermarks), _begun(self.reached), dict(self.shown)
        return Manifest(
            rounds, dict(self.positions), watermarks, reached, accounts, state, shown, drained=drained
        )


def _begun(frontiers: dict[str, float]) -> dict[str, float]:
    return {name: frontier for name, frontier in frontiers.items() if frontier != BEFORE_ALL}


def _heirs(graph: ExecutionGraph, step: str) -> Iterator[tuple[Stage, Callable[[int], bool]]]:
    """The stages of a step that keep state, each with whether it takes up a saved bucket."""
    pattern = graph.patterns.get(step)
    if pattern is not None:
        stages, deal = pattern.stateful_stages
        for number, stage in enumerate(stages):
            yield stage, partial(_is_heir, deal, number)
        return
    for bench in graph.replicas:
        stages = tuple(chained.stage for chained in bench.chain(step) if isinstance(chained, StageStep))
        assignment = graph.assignments.get(bench.group.number)
        owners = initial_owners(len(stages) or 1) if assignment is None else assignment.owners
        for number, stage in enumerate(stages):
            yield stage, partial(_owns, owners, number)


def _is_heir(deal: Partitioner, replica: int, bucket: int) -> bool:
    return replica in deal.owners(bucket)


def _owns(owners: Ints, replica: int, bucket: int) -> bool:
    return bool(owners[bucket] == replica)
