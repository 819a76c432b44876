"""The handshake pipeline beside cells, as layouts of the same stage: how long results wait (DP-Join, 4.2).

In a pipeline a row meets those that came before it only when both have flowed to one worker; in cells it
meets them when it comes. Time is that of the events: from the later of two rows to the watermark at which
their pair leaves. So nothing is waited for, whatever the machine, and rounds are as long as a hundredth of
the window.

How long pairs wait follows from the pipeline alone. It has n workers, and a row stays with each of them for
d = T / n of its window T (5.3.1), the rows of one side beginning at one end and those of the other side at
the other. A row of age a has passed floor(a / d) workers, so two of ages a and b have met once

    floor(a / d) + floor(b / d) >= n - 1.

Let the later row come when the other is of age s. Pairs are as likely for any s from 0 to T. After w more
seconds the ages are w and s + w. In units of d let s = k + f, k whole and f a fraction, and m = n - 1 - k the
workers that lie between the two. They meet

    m even  at w = m / 2: each has passed half of the workers
    m odd   at w = (m - 1) / 2 + 1 - f: the older row goes on once more before the other does

and as f is on average 1/2, after m / 2 on average in both cases. m is 0 to n - 1, each as likely: on average
(n - 1) / 2. So pairs wait for d (n - 1) / 4 = T (n - 1) / (4 n) on average, and on to the end of the round in
which they meet, r / 2 on average of rounds of r seconds.

A tolerance follows from how many pairs are seen. Waits are spread over 0 to T / 2, so their standard
deviation is about T / 2 / sqrt(12) = 0.144 T; the mean of 11,500 pairs then has one of 0.7 % of the expected
0.19 T. Three of these and a little, because pairs share rows, are 3 %.
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
from penstock.stages.join.stage import JoinStage
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Outputs, StageContext

N_WORKERS = 4
N_ROUNDS = 100
CELLS, PIPELINE = f"1 x {N_WORKERS} cells", f"handshake pipeline of {N_WORKERS} cells"
WAIT, OFF = "average wait, by event time (s)", "off the wait derived for a pipeline by"


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
            "results of a handshake pipeline wait as long as derived, within 3 %",
            Cell(case, PIPELINE),
            0.03,
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
    expected = expect_wait(streams.shape.window_s, N_WORKERS, streams.shape.probe_s / N_ROUNDS)
    notes = {WAIT: wait, OFF: abs(wait / expected - 1)}
    return Outcome(lambda: _with_probes(np.concatenate(pairs), streams), notes)


def expect_wait(window_s: float, n_workers: int, round_s: float) -> float:
    """Return how long pairs of a pipeline wait on average: T (n - 1) / (4 n), and to the end of a round."""
    return window_s * (n_workers - 1) / (4 * n_workers) + round_s / 2


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
