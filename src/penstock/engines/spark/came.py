"""What a job gave the driver, sorted out: rows by edge and round, accounts, where state is, failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from penstock.engines.failures import as_error
from penstock.engines.spark.wire import COUNTED, FAILED, FATES, REASONS, SAVED, WORKED, from_wire
from penstock.engines.state_files import Place
from penstock.errors import PenstockError
from penstock.frozen import dataclass


@dataclass(slots=True)
class Came:
    """What a job gave the driver.

    rows     edge -> round -> packed batches, in a fixed order
    counted  (round, step) -> what the parts counted
    saved    step -> bucket -> where its newest piece is
    failed   what stopped the first step that failed, if one did, and in which round
    fates    (round, source) -> what became of the rows of its chain in the JVM, and which windows they missed
    job      the job's name
    reasons  round -> step -> why a row of it failed
    worked   how long workers were at work on legs, all added up, in microseconds
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    counted: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    saved: dict[str, dict[int, Place]] = field(default_factory=dict)
    failed: PenstockError | None = None
    fates: dict[tuple[int, str], Fates] = field(default_factory=dict)
    worked: int = 0
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    job: str = ""


@dataclass(slots=True)
class Fates:
    """How many rows of a chain had which fate (`native_frames.py`), and how many windows they missed."""

    fates: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)


def came(table: pa.Table) -> Came:
    """Sort out what came back; the order of rows does not depend on which task was first."""
    found, failures = Came(), []
    rows = sorted(from_wire(table), key=lambda sent: (sent.round, sent.edge, sent.part))
    for sent in rows:
        assert sent.body is not None, "what comes back has a body"
        if sent.edge >= 0:
            found.rows.setdefault(sent.edge, {}).setdefault(sent.round, []).append(sent.body)
        elif sent.edge == COUNTED:
            found.counted.append((sent.round, json.loads(sent.body)))
        elif sent.edge == SAVED:
            for step, places in json.loads(sent.body).items():
                found.saved.setdefault(step, {}).update({b: Place(*place) for b, place in places})
        elif sent.edge == FATES:
            told = json.loads(sent.body)
            fates = found.fates.setdefault((sent.round, told["source"]), Fates())
            fates.fates.update(told["fates"])
            fates.missed.update(told.get("missed", {}))
        elif sent.edge == REASONS:
            found.reasons.setdefault(sent.round, {}).update(json.loads(sent.body))
        elif sent.edge == WORKED:
            found.worked += json.loads(sent.body)["us"]
        elif sent.edge == FAILED:
            failures.append((sent.round, json.loads(sent.body)))
    if failures:
        _, first = min(failures, key=lambda each: (each[0], each[1]["order"]))
        found.failed = as_error(first)
    return found
