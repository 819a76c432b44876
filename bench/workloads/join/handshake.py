"""The handshake pipeline beside cells, as layouts of the same stage: how long results wait (DP-Join, 4.2).

In a pipeline a row meets those that came before it only when both have flowed to one worker, so its results
wait for nearly a quarter of the window on average, whatever the machine; in cells it meets them when it
comes. Time is that of the events: from the later of two rows to the watermark at which their pair leaves. So
nothing is waited for, and rounds are as long as a hundredth of the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

import penstock as ps
from bench.workload import Case, Cell, Claim, Outcome, Way, outcome_notes
from bench.workloads.join.streams import SECOND, Ints, Shape, Streams, draw_streams, encode_pairs
from penstock.accounts import Accounts
from penstock.operators.op import OUT
from penstock.stages.build import build_join_stage
from penstock.stages.join.model import pipeline_latency
from penstock.stages.join.stage import JoinStage
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Outputs, StageContext

N_WORKERS = 4
N_ROUNDS = 100
CELLS, PIPELINE = f"1 x {N_WORKERS} cells", f"handshake pipeline of {N_WORKERS} cells"
WAIT, OFF = "average wait, by event time (s)", "off the prediction for a pipeline by"


def build_case(shape: Shape) -> Case:
    """Build the case of one rate and window."""
    name = f"meeting: {shape.rates[0]:,} rows/s per stream, {shape.window_s} s"
    return Case(name, partial(draw_streams, shape), {"rows": shape.n_probes}, group="latency")


def build_ways(case: str) -> list[Way]:
    """Build the ways: the same stage under two layouts."""
    ways = {CELLS: partial(run, layout="auto"), PIPELINE: partial(run, layout="handshake")}
    return [Way(name, way, notes=outcome_notes, only=(case,)) for name, way in ways.items()]


def build_claims(case: str) -> list[Claim]:
    """Build the claims about how long results wait."""
    return [
        Claim(
            "results of cells wait a twentieth of those of a handshake pipeline, or less",
            Cell(case, CELLS),
            1 / 20,
            Cell(case, PIPELINE),
            note=WAIT,
        ),
        Claim(
            "results of a handshake pipeline wait as long as predicted, within 10 %",
            Cell(case, PIPELINE),
            0.1,
            note=OFF,
        ),
    ]


def run(streams: Streams, *, layout: str) -> Outcome:
    """Fill the windows, send the probes in short rounds, and let the rest meet at the end."""
    site = StageContext("join", None, Accounts(), ps.ManualClock())
    op = replace(streams.shape.op, layout=layout)
    stage = build_join_stage(op, *streams.ups, site, layout=(1, N_WORKERS))
    for _ in feed(stage, streams, "lead", "warm"):
        pass
    waits, pairs = [np.empty(0)], [np.empty(0, np.int64)]
    for watermark, batch in feed(stage, streams, "probe"):
        waits.append(np.maximum(watermark - batch.times, 0) / SECOND)
        pairs.append(_pairs_of(batch))
    pairs += [_pairs_of(batch) for port, batch in stage.drain() if port == OUT]
    wait = float(np.concatenate(waits).mean())
    predicted = pipeline_latency((streams.shape.window_s, streams.shape.window_s), N_WORKERS)
    notes = {WAIT: wait, OFF: abs(wait / predicted - 1)}
    return Outcome(lambda: _with_probes(np.concatenate(pairs), streams), notes)


def feed(stage: JoinStage, streams: Streams, *parts: str) -> Iterable[tuple[float, Batch]]:
    """Give the stage parts of the streams; yield what leaves, and the watermark then."""
    for part in parts:
        for batches, watermark in streams.rounds(part, N_ROUNDS):
            outputs: Outputs = stage.on_round(batches, stage.watermark, watermark)
            yield from ((float(watermark), batch) for port, batch in outputs if port == OUT)


def _pairs_of(batch: Batch) -> Ints:
    return encode_pairs(batch.rows.column("id").to_numpy(), batch.rows.column("other").to_numpy())


def _with_probes(pairs: Ints, streams: Streams) -> Ints:
    """Return the pairs that have a probe, in order: others may meet only after the windows were full."""
    left, right = pairs >> 32, pairs & (2**32 - 1)
    return np.sort(pairs[(left >= streams.left.cuts[1]) | (right >= streams.right.cuts[1])])
