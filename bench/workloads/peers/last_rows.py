"""FraudDetection and SpikeDetection in their form of columns: windows of the last rows of a key.

Rows are those of the applications' own generators (`penstock.apps`), in order, with a running `number` by
which peers at rest can order them. The right answer is counted by NumPy, a key after the other.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, ipc

import penstock as ps
from bench.workloads.peers.queries import Answer, Input, keep_folder, new_folder
from penstock.apps import APPLICATIONS
from penstock.apps.fraud_detection import STATES, WINDOW, load_model

FRAUD, SPIKE = APPLICATIONS["fraud-detection"], APPLICATIONS["spike-detection"]
N_CUSTOMERS = 10_000


def build_transactions(n: int, seed: int) -> Input:
    """Build n transactions of ten thousand customers, and the model for peers."""
    options = _fraud_options(n, seed)
    case_input = _write_rows("transactions", FRAUD.generate(options)["transactions"], find_frauds)
    model = {"states": STATES, "misses": (1.0 - load_model(options.model)).tolist()}
    (case_input.folder / "model.json").write_text(json.dumps(model | {"threshold": options.threshold}))
    return case_input


def build_readings(n: int, seed: int) -> Input:
    """Build n temperatures of 52 devices."""
    return _write_rows("readings", SPIKE.generate(_spike_options(n, seed))["readings"], find_spikes)


def _fraud_options(n: int, seed: int) -> Any:
    return FRAUD.make_options(rows=n, seed=seed, keys=N_CUSTOMERS, form="columns")


def _spike_options(n: int, seed: int) -> Any:
    return SPIKE.make_options(rows=n, seed=seed, form="columns")


def _write_rows(name: str, rows: pa.Table, expected: Any) -> Input:
    folder = new_folder()
    table = rows.append_column("number", pa.array(np.arange(rows.num_rows)))
    with ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
        file.write_table(table)
    # For Flink, whose distribution reads no columns; it reads a compressed file as a whole, so in order.
    without = csv.WriteOptions(include_header=False, quoting_style="none")
    with pa.CompressedOutputStream(str(folder / f"{name}.csv.gz"), "gzip") as lines:
        csv.write_csv(table, lines, write_options=without)
    return keep_folder(Input({name: rows}, folder, expected))


def find_frauds(tables: dict[str, pa.Table]) -> Answer:
    """Score every five transactions of a customer that follow each other."""
    rows = tables["transactions"]
    misses, threshold = 1.0 - load_model(""), _fraud_options(1, 1).threshold
    keys, places = np.unique(rows.column("entity").to_numpy(zero_copy_only=False), return_inverse=True)
    numbers = {state: number for number, state in enumerate(STATES)}
    kinds = np.array([numbers[state] for state in rows.column("state").to_pylist()])
    order = np.argsort(places, kind="stable")
    who, kinds = places[order], kinds[order]
    steps = misses[kinds[:-1], kinds[1:]]
    scores = sum(steps[at : len(steps) - WINDOW + 2 + at] for at in range(WINDOW - 1)) / (WINDOW - 1)
    hits = np.flatnonzero((scores > threshold) & (who[WINDOW - 1 :] == who[: len(who) - WINDOW + 1]))
    names = rows.column("transaction").take(pa.array(order[hits + WINDOW - 1])).to_pylist()
    return sorted(zip(keys[who[hits]].tolist(), names, scores[hits].tolist(), strict=True))


def find_spikes(tables: dict[str, pa.Table]) -> Answer:
    """Average the last values of each device."""
    options = _spike_options(1, 1)
    times, devices, values = (
        tables["readings"].column(name).to_numpy() for name in ("time", "device", "value")
    )
    spikes: Answer = []
    for device in np.unique(devices).tolist():
        of = np.flatnonzero(devices == device)
        if len(of) < options.window:
            continue
        average = np.lib.stride_tricks.sliding_window_view(values[of], options.window).mean(axis=1)
        last = of[options.window - 1 :]
        for at in np.flatnonzero(np.abs(values[last] - average) > options.threshold * average):
            row = int(last[at])
            spikes.append((int(times[row]), device, float(values[row]), float(average[at])))
    return sorted(spikes)


def run_frauds(case_input: Input) -> Any:
    """Find frauds with Penstock."""
    options = _fraud_options(1, 1)
    return _collect(FRAUD, case_input, options, ["entity", "transaction", "score"])


def run_spikes(case_input: Input) -> Any:
    """Find spikes with Penstock."""
    return _collect(SPIKE, case_input, _spike_options(1, 1), ["time", "device", "value", "average"])


def _collect(application: Any, case_input: Input, options: Any, names: list[str]) -> pa.Table:
    answer = ps.write.memory()
    application.graph(options, tables=case_input.tables, writer=answer).run("local")
    return answer.table().select(names)
