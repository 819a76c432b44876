"""What a job gave the driver: reports, rows for what lives there, and the failures of steps and of Spark.

Failures of steps come back as data (`engines/wire.py`); `translate_failure` is for what Spark itself raises.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.connect.writers.staged_files import StagedFile
from penstock.engines.checkpoint.state_files import StateHandle
from penstock.engines.spark.driver.read_ahead import merge_reports
from penstock.engines.spark.session.executors import explain_failure
from penstock.engines.spark.session.session import explain_dead_java
from penstock.engines.spark.source_task import SourceReport
from penstock.engines.spark.wire import Kind, from_wire
from penstock.engines.wire import failure_from_dict
from penstock.errors import CheckpointError, EngineError, PenstockError, describe_cause
from penstock.frozen import dataclass
from penstock.operators.rows import user_function
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan

DEATH_S = 5.0
"""How long a Java whose connections are gone has to end, so that its code can be told."""
_DIED = re.compile(r"Python worker (process )?(exited|crashed|terminated)")


@dataclass(slots=True)
class JobResult:
    """What a job gave the driver.

    rows      edge -> round -> packed batches, in a fixed order
    accounts  (round, step -> what a partition counted)
    state     step -> bucket -> where its newest piece is
    failure   what stopped the first step that failed, or else the first source stage
    outcomes  (round, source) -> outcome -> the number of its rows that had it before fragment 0
    reasons   round -> step -> why a row of it failed
    work_us   how long workers were at work, all added up, in microseconds
    job       the name of the job
    sources   what source stages found in splits that the job read
    staged    sink -> the files that tasks have written for it
    written   sink -> round -> the number of its rows
    files     (file, edge, round, offset, length) of packed batches that were too many to be sent
    nbytes    how much the driver was sent
    joins     what was sent to joins, and what their cells did
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    accounts: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    state: dict[str, dict[int, StateHandle]] = field(default_factory=dict)
    failure: PenstockError | None = None
    outcomes: dict[tuple[int, str], Counter[int]] = field(default_factory=dict)
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    work_us: int = 0
    job: str = ""
    sources: list[SourceReport] = field(default_factory=list)
    staged: dict[str, list[StagedFile]] = field(default_factory=dict)
    written: dict[str, Counter[int]] = field(default_factory=dict)
    files: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    nbytes: int = 0
    joins: list[Mapping[str, Any]] = field(default_factory=list)


def read_job_result(table: pa.Table) -> JobResult:
    """Sort out the wire rows of a job; their order does not depend on which task was first."""
    result, failures = JobResult(nbytes=table.nbytes), []
    for row in sorted(from_wire(table), key=lambda row: (row.round, row.edge, row.partition)):
        assert row.body is not None, "what comes back has a body"
        if row.kind is Kind.BATCH:
            result.rows.setdefault(row.edge, {}).setdefault(row.round, []).append(row.body)
            continue
        message = json.loads(row.body)
        if row.kind is Kind.ACCOUNTS:
            result.accounts.append((row.round, message))
        elif row.kind is Kind.STATE:
            for step, places in message.items():
                result.state.setdefault(step, {}).update({b: StateHandle.of(place) for b, place in places})
        elif row.kind is Kind.OUTCOMES:
            counts = result.outcomes.setdefault((row.round, message["source"]), Counter())
            counts.update({int(outcome): n for outcome, n in message["outcomes"].items()})
        elif row.kind is Kind.REASONS:
            result.reasons.setdefault(row.round, {}).update(message)
        elif row.kind is Kind.WORK_TIME:
            result.work_us += message["us"]
        elif row.kind is Kind.ROWS_FILE:
            result.files += [(message["file"], *place) for place in message["places"]]
        elif row.kind is Kind.SOURCE_REPORT:
            result.sources.append(SourceReport(**message))
        elif row.kind is Kind.STAGED:
            for sink, staged in message.items():
                files = [StagedFile(*fields) for fields in staged["files"]]
                result.staged.setdefault(sink, []).extend(files)
                result.written.setdefault(sink, Counter()).update(dict(staged["rows"]))
        elif row.kind is Kind.JOIN_ROWS:
            result.joins.append(message)
        elif row.kind is Kind.FAILURE:
            failures.append((row.round, message["order"], message))
    failed_reads = [report for report in merge_reports(result.sources).values() if report.failure is not None]
    if failures:
        *_, first = min(failures, key=lambda failure: failure[:2])
        result.failure = failure_from_dict(first)
    elif failed_reads:
        result.failure = failure_from_dict(min(failed_reads, key=lambda report: report.batch).failure or {})
    return result


def no_room_error(cause: OSError) -> EngineError:
    """Return the error for input of a job that could not be written down for Spark."""
    return EngineError(
        f"rows cannot be handed to Spark: {describe_cause(cause)}",
        hint="make room in the folder for temporary files, or name another with TMPDIR",
    )


_DISK = re.compile(
    r"No space left on device|Read-only file system|Disk quota exceeded|File too large|Input/output error"
    r"|Permission denied|Mkdirs failed to create [^\n]*|ParentNotDirectoryException[^\n]*|Not a directory"
    r"|is not a directory"
)
_PATH = re.compile(r"(?:file:)?(/[^\s:()'\",;]+)")
_LITTLE = 1 << 20
"""Bytes; a disk with less is full."""


def find_disk_error(text: str, checkpoint: Path | None) -> PenstockError | None:
    """Return the error for a disk that Spark could not write to, with the folder; None if it says no such.

    text        what Spark raised, or why a query ended
    checkpoint  the checkpoint folder; None if nobody will resume from it
    """
    reason = _DISK.search(text)
    if reason is None:
        return None
    paths = [Path(path) for path in _PATH.findall(text) if Path(path).is_absolute()]
    own = None if checkpoint is None else str(checkpoint)
    is_own = own is not None and (
        any(str(path).startswith(own) for path in paths) or _is_full(checkpoint, *map(Path, _TEMPORARY))
    )
    if is_own:
        return CheckpointError(
            f"the checkpoint cannot be written: {reason[0]}",
            detail=own,
            hint="make room there, or make it writable, and run the same again: it goes on where it was",
        )
    place = next((path for path in paths if not str(path).endswith(".java")), Path(tempfile.gettempdir()))
    return EngineError(
        f"Spark cannot write its temporary files: {reason[0]}",
        detail=str(place),
        hint='make room there, or name another: SparkOptions(conf={"spark.local.dir": "/mnt/scratch"})',
    )


def _is_full(folder: Path | None, *spare: Path) -> bool:
    """Return whether there is no room for a folder, and there is for all spare ones."""
    try:
        return folder is not None and shutil.disk_usage(folder).free < _LITTLE <= min(
            shutil.disk_usage(one).free for one in spare
        )
    except OSError:
        return True


_TEMPORARY = (tempfile.gettempdir(),)


def translate_failure(failure: BaseException, plan: Plan, checkpoint: Path | None = None) -> BaseException:
    """Return what Spark raised as an error of ours; everything else as it is.

    checkpoint  the checkpoint folder; None if nobody will resume from it
    """
    if isinstance(failure, PenstockError) or not isinstance(failure, Exception):
        return failure
    # Why before all others: whoever talks to a Java that is gone fails in a way of its own.
    is_cut_off = isinstance(failure, ConnectionError) or type(failure).__name__ == "Py4JNetworkError"
    dead = explain_dead_java(DEATH_S if is_cut_off else 0.0)
    if dead is not None:
        dead.__cause__ = failure
        return dead
    if not type(failure).__module__.startswith(("pyspark", "py4j")):
        return failure
    reasons = re.findall(r"^(?:Caused by: |: )?([\w.$]*(?:Exception|Error): .+)", str(failure), re.MULTILINE)
    error: PenstockError | None = explain_failure(failure)
    if error is None:
        error = find_disk_error(str(failure), checkpoint)
    if error is None and _DIED.search(str(failure)):
        error = _worker_died(plan)
    elif error is None:
        error = EngineError("Spark failed to run a batch", detail=[str(failure)[:500], *reasons][-1])
    error.__cause__ = failure
    return error


def _worker_died(plan: Plan) -> EngineError:
    """Return the error for a worker that died: only users' functions can have ended it."""
    steps = [
        step
        for step in plan
        if user_function(step.op) is not None or (isinstance(step.op, Windows) and step.op.function)
    ]
    names = ", ".join(f'"{step.name}"' for step in steps)
    return EngineError(
        "a Python worker of Spark died, and died again whenever Spark tried once more",
        step=steps[0].name if len(steps) == 1 else None,
        where=steps[0].where if len(steps) == 1 else None,
        detail=f"steps with Python functions: {names}" if names else "no step has a Python function",
        hint="look for os._exit, a crash in native code, or too little memory for a worker; "
        'engine="reference" runs the functions in this process',
    )
