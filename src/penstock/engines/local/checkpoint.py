"""Checkpoints while rows flow: every task saves its state at the end of the same round (aligned barriers).

Rounds are numbered in band, so the barrier exists already: a task that has completed round n has seen all
rows of it and none of the next. When all tasks have saved, all sinks have committed the round too, and one
manifest says so. After a crash the rounds after that manifest are repeated under the same numbers, and sinks
do not write again what they have committed of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import NamedTuple

from penstock.accounts import Accounts
from penstock.clock import Clock, HeldClock
from penstock.connect.protocol import SourcePosition
from penstock.crash_points import PROCESSED, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, convert_state
from penstock.engines.checkpoint.manifest import Manifest
from penstock.engines.checkpoint.round_records import (
    RoundRecord,
    follows_clock,
    needs_records,
    open_records,
    resume_ends,
)
from penstock.engines.checkpoint.state_files import StateHandle, count_waiting, state_size
from penstock.engines.ends import SourceReader
from penstock.engines.frontiers import Frontier
from penstock.engines.local.build import ExecutionGraph, count_task
from penstock.engines.local.elastic.rescale import initial_owners
from penstock.engines.local.tasks.chain import StageStep
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.events import StateSaved
from penstock.plan.plan import Plan
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.stage import Stage
from penstock.stages.window.stage import WindowStage
from penstock.timing.windows import BEFORE_ALL

NEVER = -1
"""Stands for the round to save after a failure: none."""


class SavedTask(NamedTuple):
    """What a task has saved at the end of a round: its part of the manifest, and its counts until then."""

    number: int
    manifest: Manifest
    accounts: Mapping[str, Accounts]


class CheckpointCoordinator:
    """Decides which rounds are saved, gathers what the tasks save of them, and commits the manifest.

    every    microseconds between two checkpoints, by the run's clock; at most one is in progress
    round    the round of that one; None if there is none
    refusal  what is raised for more input, if the windows of an earlier run have been closed

    records  what the clock decides of rounds

    Invariant: a round is chosen before any row of it is read (`begin_round`), so every task still has its end
    ahead. `_lock` guards what is known of the checkpoint in progress. `_storing` is held from writing a state
    file until its place is known, because a commit deletes all files that nobody knows.
    """

    def __init__(self, checkpoint: Checkpoint, plan: Plan, clock: Clock, *, every: int) -> None:
        self._checkpoint, self._clock, self._every = checkpoint, clock, every
        self.done = checkpoint.latest_manifest()
        self.refusal = checkpoint.refuse_input(plan)
        self.records = open_records(checkpoint, self.done.rounds)
        self._graph: ExecutionGraph
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._last = clock.now()
        self.round: int | None = None
        self._ended: set[int] = set()
        self._waits_for: set[int] = set()
        self._manifest = self.done
        self._counted: dict[int, Mapping[str, Accounts]] = {}  # by task, as of the manifest
        self._later: list[SavedTask] = []  # of tasks that ended after the round of the checkpoint in progress

    def restore(self, graph: ExecutionGraph) -> None:
        """Let all tasks continue from the latest checkpoint."""
        self._graph = graph
        graph.earlier_accounts = self.done.accounts
        for reader in graph.readers.values():
            name = reader.step.name
            position = self.done.positions.get(name, SourcePosition())
            watermark = self.done.source_watermarks.get(name, BEFORE_ALL)
            reader.resume(position, watermark, self._checkpoint.journal)
            if self.refusal is not None:
                reader.refuse(self.refusal)
        for source in graph.tasks:
            if isinstance(source, SourceTask) and needs_records(source.reader.step.as_source):
                source.held_clock = source.reader.hold_clock()
        for task in graph.tasks:
            for chained in task.chain:
                frontier = Frontier(self.done.step_watermarks.get(chained.step.name, BEFORE_ALL))
                if isinstance(chained, StageStep):
                    chained.frontier = frontier
                    stage = chained.stage
                    if isinstance(stage, WindowStage) and stage.site.step in self.done.early_fired_at:
                        # The interval of early firings goes on, also if the clock was set back.
                        stage.fired_at = min(self.done.early_fired_at[stage.site.step], stage.fired_at)
                if isinstance(task, InputTask) and chained.step is task.steps[0]:
                    task.frontier = frontier
        files, state = self._checkpoint.files, dict(self.done.state)
        for step in self.done.state:
            stages = list(_stages_to_restore(graph, step))
            for form in {stage.form for stage, _, _ in stages if isinstance(stage, WindowStage)}:
                state[step] = dict(convert_state(graph.plan[step], self.done, files, form))
            pieces = files.read(state[step], step)
            for stage, replica, owners in stages:
                stage.restore(
                    {bucket: piece for bucket, piece in pieces.items() if replica in owners(bucket)}
                )
        self._manifest = replace(self.done, state=state)

    def resume_ends(self) -> int:
        """Let sources end where an earlier run has ended them, if a sink has committed that.

        Return the number of the first round that no sink has committed.
        """
        committed = max((writer.last_committed for writer in self._graph.writers.values()), default=-1)
        ends = resume_ends(self.records, self._checkpoint, self._graph.readers, self.done.rounds, committed)
        for task in self._graph.tasks:
            if isinstance(task, SourceTask) and task.reader.step.name in ends:
                task.end_at(ends[task.reader.step.name])
        return committed + 1

    def hold_clock(self, clock: HeldClock, reader: SourceReader, number: int, *, took: bool) -> None:
        """Let the clock of a source stand still in a round, where it stood if the round is repeated."""
        name = reader.step.name
        record = self.records.find(name, number)
        if record is None:
            record = RoundRecord(clock.now(), took, reader.last_rows_at)
            if not took or follows_clock(reader.step.as_source):
                self.records.record(name, number, record)
        clock.us = record.now
        reader.last_rows_at = record.rows_at

    def record_end(self, reader: SourceReader, number: int, *, all_sources: bool) -> None:
        """Record that a source ends in a round, or all of them, because the run was stopped."""
        if not any(writer.is_durable for writer in self._graph.writers.values()):
            return  # nobody would take the round for one that is written
        names = {reader.step.name}
        if all_sources:
            # Why not those that can finish: they end in a round of their own, with what is left of them.
            readers = self._graph.readers.values()
            names |= {one.step.name for one in readers if not (one.frontier.over or one.can_finish)}
        self.records.record_end(names, number)

    def begin_round(self, number: int) -> None:
        """Choose a round that is about to begin for the next checkpoint, if one is due."""
        now = self._clock.now()
        with self._lock:
            if self.round is None and now - self._last >= self._every:
                self.round, self._last = number, now
                self._waits_for = {task.number for task in self._graph.tasks} - self._ended
                self._add_ended_tasks()

    def complete_round(self, task: Task, number: int) -> StateSaved | None:
        """Save the state of a task that has completed the chosen round; return the event of a commit."""
        if number != self.round:
            return None
        with self._storing:
            saved = self._save(task, number)
            with self._lock:
                self._add(saved)
        return self._commit_if_complete(task)

    def end_task(self, task: Task, *, failed: bool) -> StateSaved | None:
        """Save the state of a task that has ended; after a failure nothing is saved any more."""
        if failed:
            self.round = NEVER
            return None
        with self._storing:
            saved = self._save(task, task.round - 1)
            with self._lock:
                self._ended.add(task.number)
                # Why: a task that the checkpoint still waits for has ended before its round, and belongs to
                # it.
                if task.number in self._waits_for:
                    self._add(saved)
                else:
                    self._later.append(saved)
        return self._commit_if_complete(task)

    def commit_end(self, rounds: int, *, drained: bool) -> StateSaved:
        """Commit the end of the run: all tasks have ended after the same round."""
        self._add_ended_tasks()
        return self._commit(rounds, drained=drained)

    def count_waiting(self) -> dict[str, int]:
        """Return how many windows, or rows, of each step wait in what was committed last."""
        return count_waiting(self._manifest.state)

    def n_written(self, sink: str) -> int:
        """Return the number of rows that earlier runs have written to a sink."""
        return int(self.done.accounts.get(sink, {}).get("rows_out", 0))

    def _commit_if_complete(self, task: Task) -> StateSaved | None:
        """Commit the chosen round if this was the last task to save it."""
        with self._lock:
            if task.number not in self._waits_for or self.round in (None, NEVER):
                return None
            self._waits_for.discard(task.number)
            number = self.round
            if self._waits_for or number is None:
                return None
        # Invariant: only the last of the tasks comes here, so the commit needs no lock against another one.
        if all(reader.frontier.over for reader in self._graph.readers.values()):
            self.round = None  # the run is about to end, and is saved then
            return None
        pass_crash_point(PROCESSED)
        event = self._commit(number + 1, drained=False)
        self.round = None
        return event

    def _save(self, task: Task, number: int) -> SavedTask:
        """Write the state of a task; return its part of the manifest: where that is, and the progress."""
        positions, watermarks, step_watermarks, fired_at, pieces = {}, {}, {}, {}, {}
        before: dict[str, dict[int, tuple[StateHandle, ...]]] = {}
        if isinstance(task, SourceTask):
            name = task.reader.step.name
            positions[name], watermarks[name] = task.reader.position, task.reader.watermark
        for chained in task.chain:
            name = chained.step.name
            if isinstance(chained, StageStep):
                stage = chained.stage
                step_watermarks[name] = chained.frontier.watermark
                if isinstance(stage, WindowStage) and stage.early is not None:
                    fired_at[name] = stage.fired_at
                if chained.saves_changes:
                    known = self._manifest.state.get(name, {})
                    before[name] = {
                        bucket: handle.pieces
                        for bucket, handle in known.items()
                        if handle.takes_changes(bucket % BUCKETS)
                    }
                    state = dict(chained.snapshot_changes(before[name]))
                else:
                    state = dict(stage.snapshot())
                if state:
                    pieces[name] = state
        handles = self._checkpoint.files.write(number + 1, str(task.number), pieces) if pieces else {}
        for name, by_bucket in before.items():
            for bucket in by_bucket.keys() & handles.get(name, {}).keys():
                handles[name][bucket] = handles[name][bucket]._replace(before=by_bucket[bucket])
        manifest = Manifest(
            positions=positions,
            source_watermarks=watermarks,
            step_watermarks=step_watermarks,
            state=handles,
            early_fired_at=fired_at,
        )
        accounts = {chained.step.name: Accounts() for chained in task.chain}
        count_task(task, accounts)
        return SavedTask(task.number, manifest, accounts)

    def _add(self, saved: SavedTask) -> None:
        """Take what a task has saved into the next manifest."""
        self._manifest = merge_manifests(self._manifest, saved.manifest)
        self._counted[saved.number] = saved.accounts

    def _add_ended_tasks(self) -> None:
        later, self._later = self._later, []
        for saved in later:
            self._add(saved)

    def _commit(self, rounds: int, *, drained: bool) -> StateSaved:
        # The accounts are those of all runs of this checkpoint.
        total = {step.name: Accounts() for step in self._graph.plan}
        total |= {name: Accounts(**counts) for name, counts in self.done.accounts.items()}
        for counted in self._counted.values():
            for name, own in counted.items():
                total[name].add(own)
        with self._storing:
            with self._lock:
                manifest = replace(
                    self._manifest,
                    rounds=rounds,
                    source_watermarks=_without_initial(self._manifest.source_watermarks),
                    step_watermarks=_without_initial(self._manifest.step_watermarks),
                    accounts={name: asdict(accounts) for name, accounts in total.items()},
                    drained=drained,
                )
                places = (
                    handles.values() for saved in self._later for handles in saved.manifest.state.values()
                )
                still_needed = {piece.file for handles in places for one in handles for piece in one.pieces}
            nbytes = self._checkpoint.commit(manifest, still_needed)
            self.records.complete(rounds)
        return StateSaved(self._clock.now(), rounds - 1, nbytes, *state_size(manifest.state))


def merge_manifests(older: Manifest, newer: Manifest) -> Manifest:
    """Return a manifest with the progress and state of some tasks in place of older ones."""
    state = {step: dict(handles) for step, handles in older.state.items()}
    for step, handles in newer.state.items():
        state.setdefault(step, {}).update(handles)
    fired_at = dict(older.early_fired_at)
    for step, at in newer.early_fired_at.items():
        fired_at[step] = max(at, fired_at.get(step, at))
    return replace(
        older,
        positions={**older.positions, **newer.positions},
        source_watermarks={**older.source_watermarks, **newer.source_watermarks},
        step_watermarks={**older.step_watermarks, **newer.step_watermarks},
        state=state,
        early_fired_at=fired_at,
    )


def _without_initial(watermarks: Mapping[str, float]) -> dict[str, float]:
    return {name: watermark for name, watermark in watermarks.items() if watermark != BEFORE_ALL}


def _stages_to_restore(
    graph: ExecutionGraph, step: str
) -> Iterator[tuple[Stage, int, Callable[[int], Collection[int]]]]:
    """Yield the stages of a step that keep state, each with its number and who owns a saved bucket."""
    pattern = graph.patterns.get(step)
    if pattern is not None:
        stages, partitioner = pattern.stateful_stages
        for replica, stage in enumerate(stages):
            yield stage, replica, partitioner.owners
        return
    for replicas in graph.replicas:
        stages = tuple(
            chained.stage for chained in replicas.chained_steps(step) if isinstance(chained, StageStep)
        )
        assignment = graph.assignments.get(replicas.group.number)
        owners = initial_owners(len(stages) or 1) if assignment is None else assignment.owners
        owner_of = [(owner,) for owner in owners.tolist()]
        owner_of *= 2  # a join has as many buckets again, for its right side
        for replica, stage in enumerate(stages):
            yield stage, replica, owner_of.__getitem__
