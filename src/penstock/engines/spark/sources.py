"""Which way a source is read: here, by Spark, or in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.readers.spark import SparkStreamReader
from penstock.engines.sources import SourceReader
from penstock.engines.spark.driver.polling import BackgroundSourceReader, StreamSourceReader
from penstock.engines.spark.jvm.carry import JvmSource
from penstock.engines.spark.jvm.source import FilesReader, FrameReader
from penstock.operators.ends import Source
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step


def open_source(
    plan: Plan, step: Step, clock: Clock, accounts: Accounts, native: Mapping[str, JvmSource], folder: Path
) -> SourceReader:
    """A source at work; `folder` is where Spark may keep how far a stream has come."""
    assert isinstance(step.op, Source), "only sources read"
    if isinstance(step.op.reader, SparkStreamReader):
        place = folder / f"stream-{plan.sources.index(step)}"
        return StreamSourceReader(plan, step, clock, accounts, place)
    found = native.get(step.name)
    if found is not None:
        make = FrameReader if found.frames.of_frame else FilesReader
        made = make(plan, step, clock, accounts, found.frames.look)
        made.by_workers = found.by_workers
        made.light = found.light
        if any(find_spark_sql(each.op) for each in found.chain.steps):
            made.least_rows = 1  # no worker could do it, however few rows there are
        return made
    kind = SourceReader if step.op.reader.bounded else BackgroundSourceReader
    return kind(plan, step, clock, accounts)
