"""Checkpoints while rows flow: every task saves its state at the end of the same round (aligned barriers).

Rounds are numbered in band, so the barrier exists already: a task that has completed round n has seen all
rows of it and none of the next. When all tasks have saved, all sinks have committed the round too, and one
manifest says so. After a crash the rounds after that manifest are repeated under the same numbers, and sinks
do not write again what they have committed of them.
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
from penstock.engines.local.topology.graph import ExecutionGraph
from penstock.events import StateSaved
from penstock.stages.patterns.partitioners import Partitioner
from penstock.stages.rows.batch import Ints
from penstock.stages.stage import Stage
from penstock.stages.window.stage import WindowStage
from penstock.timing.watermark import BEFORE_ALL

State = dict[str, dict[int, StateHandle]]
NEVER = -1
"""Stands for the round to save after a failure: none."""


class CheckpointCoordinator:
    """Decides which rounds are saved, gathers what the tasks save of them, and commits the manifest.

    every  microseconds between two checkpoints, by the run's clock; at most one is in progress

    Invariant: a round is chosen before any row of it is read (`begin_round`), so every task still has its end
    ahead. `_lock` guards what is known of the checkpoint in progress. `_storing` is held from writing a state
    file until its place is known, because a commit deletes all files that ignore_event knows.
    """

    def __init__(self, checkpoint: Checkpoint, clock: Clock, *, every: int) -> None:
        self._checkpoint, self._clock, self._every = checkpoint, clock, every
        self.done = checkpoint.latest_manifest()
        if self.done.drained:
            raise checkpoint.drained_error()
        self._graph: ExecutionGraph
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._last = clock.now()
        self._round: int | None = None
        self._ended: set[int] = set()
        self._waits_for: set[int] = set()
        self._snapshot = _Snapshot(self.done)
        self._later: list[_Snapshot] = []  # of tasks that ended after the round of the checkpoint in progress

    def restore(self, graph: ExecutionGraph) -> None:
        """Lets all tasks continue from the latest checkpoint."""
        self._graph = graph
        for reader in graph.readers.values():
            name = reader.step.name
            position = self.done.positions.get(name, (0, 0))
            watermark = self.done.source_watermarks.get(name, BEFORE_ALL)
            reader.resume(position, watermark, self._checkpoint.journal)
        for task in graph.tasks:
            for chained in task.chain:
                frontier = Frontier(self.done.step_watermarks.get(chained.step.name, BEFORE_ALL))
                if isinstance(chained, StageStep):
                    chained.frontier = frontier
                    self._restore_early_firings(chained.stage)
                if isinstance(task, InputTask) and chained.step is task.steps[0]:
                    task.frontier = frontier
        files = self._checkpoint.files
        for step in self.done.state:
            stages = list(_stages_to_restore(graph, step))
            for form in {stage.form for stage, _ in stages if isinstance(stage, WindowStage)}:
                self._snapshot.state[step] = dict(convert_state(graph.plan[step], self.done, files, form))
            pieces = files.read(self._snapshot.state[step], step)
            for stage, takes in stages:
                stage.restore({bucket: piece for bucket, piece in pieces.items() if takes(bucket)})

    def _restore_early_firings(self, stage: Stage) -> None:
        """Continues the interval of early firings, also if the clock was set back."""
        if isinstance(stage, WindowStage) and stage.site.step in self.done.early_fired_at:
            stage.fired_at = min(self.done.early_fired_at[stage.site.step], stage.fired_at)

    def saves_round(self, number: int) -> bool:
        """Returns whether this round is the one of the checkpoint in progress."""
        return number == self._round

    def begin_round(self, number: int) -> None:
        """Chooses a round that is about to begin for the next checkpoint, if one is due."""
        now = self._clock.now()
        with self._lock:
            if self._round is None and now - self._last >= self._every:
                self._round, self._last = number, now
                self._waits_for = {task.number for task in self._graph.tasks} - self._ended
                self._add_ended_tasks()

    def complete_round(self, task: Task, number: int) -> StateSaved | None:
        """Saves the state of a task that has completed the chosen round; returns the event of a commit."""
        if number != self._round:
            return None
        with self._storing:
            snapshot = self._save(task, number)
            with self._lock:
                self._snapshot.add(snapshot)
        return self._commit_if_complete(task)

    def end_task(self, task: Task, *, failed: bool) -> StateSaved | None:
        """Saves the state of a task that has ended; after a failure nothing is saved any more."""
        if failed:
            self._round = NEVER
            return None
        with self._storing:
            snapshot = self._save(task, task.round - 1)
            with self._lock:
                self._ended.add(task.number)
                # Why: a task that the checkpoint still waits for has ended before its round, and belongs to
                # it.
                if task.number in self._waits_for:
                    self._snapshot.add(snapshot)
                else:
                    self._later.append(snapshot)
        return self._commit_if_complete(task)

    def commit_end(self, rounds: int, *, drained: bool) -> StateSaved:
        """Commits the end of the run: all tasks have ended after the same round."""
        self._add_ended_tasks()
        return self._commit(rounds, drained=drained)

    def n_written(self, sink: str) -> int:
        """Returns the number of rows that earlier runs have written to a sink."""
        return int(self.done.accounts.get(sink, {}).get("rows_out", 0))

    def _commit_if_complete(self, task: Task) -> StateSaved | None:
        """Commits the chosen round if this was the last task to save it."""
        with self._lock:
            if task.number not in self._waits_for or self._round in (None, NEVER):
                return None
            self._waits_for.discard(task.number)
            number = self._round
            if self._waits_for or number is None:
                return None
        # Invariant: only the last of the tasks comes here, so the commit needs no lock against another one.
        if all(reader.frontier.over for reader in self._graph.readers.values()):
            self._round = None  # the run is about to end, and is saved then
            return None
        pass_crash_point(PROCESSED)
        event = self._commit(number + 1, drained=False)
        self._round = None
        return event

    def _save(self, task: Task, number: int) -> _Snapshot:
        snapshot, pieces = _Snapshot(Manifest()), {}
        for chained in task.chain:
            snapshot.add_step(chained)
            if isinstance(chained, StageStep):
                state = dict(chained.stage.snapshot())
                if state:
                    pieces[chained.step.name] = state
        if pieces:
            snapshot.state = self._checkpoint.files.write(number + 1, str(task.number), pieces)
        return snapshot

    def _total_accounts(self) -> dict[str, Accounts]:
        """Returns the accounts of all runs of this checkpoint."""
        total = {name: Accounts(**counts) for name, counts in self.done.accounts.items()}
        for name, accounts in self._graph.accounts().items():
            total.setdefault(name, Accounts()).add(accounts)
        return total

    def _add_ended_tasks(self) -> None:
        later, self._later = self._later, []
        for snapshot in later:
            self._snapshot.add(snapshot)

    def _commit(self, rounds: int, *, drained: bool) -> StateSaved:
        accounts = {name: asdict(total) for name, total in self._total_accounts().items()}
        with self._storing:
            with self._lock:
                manifest = self._snapshot.manifest(rounds, accounts, drained=drained)
                still_needed = {name for snapshot in self._later for name in snapshot.files()}
            nbytes = self._checkpoint.commit(manifest, still_needed)
        return StateSaved(self._clock.now(), rounds - 1, nbytes, *state_size(manifest.state))


class _Snapshot:
    """The positions of sources, the frontiers of steps and the places of their state, for some tasks."""

    def __init__(self, done: Manifest) -> None:
        self.positions = dict(done.positions)
        self.watermarks = dict(done.source_watermarks)
        self.reached = dict(done.step_watermarks)
        self.state: State = {step: dict(places) for step, places in done.state.items()}
        self.shown = dict(done.early_fired_at)

    def add_step(self, chained: ChainedStep) -> None:
        """Adds the progress of a chained step; its state is written separately."""
        if isinstance(chained, SourceStep):
            self.positions[chained.step.name] = chained.reader.position
            self.watermarks[chained.step.name] = chained.reader.watermark
        if isinstance(chained, StageStep):
            self.reached[chained.step.name] = chained.frontier.watermark
            if isinstance(chained.stage, WindowStage) and chained.stage.early is not None:
                self.shown[chained.step.name] = chained.stage.fired_at

    def add(self, newer: _Snapshot) -> None:
        """Adds a newer snapshot of some tasks."""
        self.positions |= newer.positions
        self.watermarks |= newer.watermarks
        self.reached |= newer.reached
        for step, places in newer.state.items():
            self.state.setdefault(step, {}).update(places)
        for step, at in newer.shown.items():
            self.shown[step] = max(at, self.shown.get(step, at))

    def files(self) -> Iterator[str]:
        """Yields the files that hold its state."""
        return (place.file for places in self.state.values() for place in places.values())

    def manifest(self, rounds: int, accounts: dict[str, dict[str, Any]], *, drained: bool) -> Manifest:
        """Returns a manifest of the snapshot that later changes do not reach."""
        state = {step: dict(places) for step, places in self.state.items()}
        watermarks, reached = _without_initial(self.watermarks), _without_initial(self.reached)
        return Manifest(
            rounds,
            dict(self.positions),
            watermarks,
            reached,
            accounts,
            state,
            dict(self.shown),
            drained=drained,
        )


def _without_initial(watermarks: dict[str, float]) -> dict[str, float]:
    return {name: watermark for name, watermark in watermarks.items() if watermark != BEFORE_ALL}


def _stages_to_restore(graph: ExecutionGraph, step: str) -> Iterator[tuple[Stage, Callable[[int], bool]]]:
    """Yields the stages of a step that keep state, each with whether it takes a saved bucket."""
    pattern = graph.patterns.get(step)
    if pattern is not None:
        stages, partitioner = pattern.stateful_stages
        for replica, stage in enumerate(stages):
            yield stage, partial(_inherits, partitioner, replica)
        return
    for replicas in graph.replicas:
        stages = tuple(
            chained.stage for chained in replicas.chained_steps(step) if isinstance(chained, StageStep)
        )
        assignment = graph.assignments.get(replicas.group.number)
        owners = initial_owners(len(stages) or 1) if assignment is None else assignment.owners
        for replica, stage in enumerate(stages):
            yield stage, partial(_owns, owners, replica)


def _inherits(partitioner: Partitioner, replica: int, bucket: int) -> bool:
    return replica in partitioner.owners(bucket)


def _owns(owners: Ints, replica: int, bucket: int) -> bool:
    return bool(owners[bucket] == replica)
