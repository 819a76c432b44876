"""A plan made ready to run on a session: cut into legs, with its checkpoint, jobs and rounds."""

from __future__ import annotations

import threading
import uuid

from penstock.clock import Clock
from penstock.engines.checkpoint import Checkpoint
from penstock.engines.described import described
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.by_hand import SparkByHand
from penstock.engines.spark.jobs import Jobs
from penstock.engines.spark.legs import cut
from penstock.engines.spark.progress_line import with_progress
from penstock.engines.spark.rounds import Rounds
from penstock.engines.spark.running import SparkRun
from penstock.engines.spark.session import Opened
from penstock.engines.tables import with_tables
from penstock.events import EventSink
from penstock.plan.plan import Plan

_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between stages: worth it for what a user's DataFrame may be, not for jobs that are known."""


def running(plan: Plan, opened: Opened, *, clock: Clock, events: EventSink, options: RunOptions) -> SparkRun:
    """A run that goes by itself."""
    plan, events = with_tables(plan), with_progress(events)
    stopping = threading.Event()
    rounds, checkpoint = _made(plan, opened, clock, events, options, stopping)
    return SparkRun(plan, rounds, checkpoint, opened, stopping, clock=clock, events=events, options=options)


def by_hand(
    plan: Plan, opened: Opened, *, clock: Clock, events: EventSink, options: RunOptions
) -> SparkByHand:
    """A run that is fed by hand."""
    plan = with_tables(plan)
    rounds, checkpoint = _made(plan, opened, clock, events, options, threading.Event())
    return SparkByHand(plan, rounds, checkpoint, clock=clock, events=events, options=options)


def _made(
    plan: Plan,
    opened: Opened,
    clock: Clock,
    events: EventSink,
    options: RunOptions,
    stopping: threading.Event,
) -> tuple[Rounds, Checkpoint]:
    checkpoint = Checkpoint(options.checkpoint, described(plan))
    legs = cut(plan)
    jobs = Jobs(opened.spark, plan, legs, run=uuid.uuid4().hex, n_parts=opened.partitions)
    asked = getattr(options.engine, "conf", {})
    if _ADAPTIVE not in asked and not any(native.frames.of_frame for native in jobs.native.values()):
        opened.spark.conf.set(_ADAPTIVE, "false")
    rounds = Rounds(
        plan,
        legs,
        jobs,
        checkpoint,
        clock=clock,
        events=events,
        until=options.until,
        drain=options.drain,
        n_parts=opened.partitions,
        stopping=stopping,
    )
    return rounds, checkpoint
