"""FraudDetection: customers whose last five transactions would hardly follow from each other.

A Markov model says how likely each kind of transaction follows another. A window of the last five
transactions of a customer is scored by the mean of what its four transitions had against them, and those
above a threshold leave. Kinds are an amount (Low, Medium, High), whether an expensive item is in it (Normal,
High), and the time since the last (Small, Normal, Large). WindFlow, 5.1; DSPBench.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock import col
from penstock.apps.application import (
    Application,
    Options,
    Rows,
    Tables,
    draw_times,
    in_order,
    let_arrive,
    open_source,
    read_csv,
)

STATES = [amount + item + gap for amount in "LMH" for item in "NH" for gap in "LNS"]
LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", np.uint8)
WINDOW = 5
PER_CUSTOMER = 17
"""Transactions of a customer, on average, as in the suites: 800,000 of 46,656."""
SCORED = {"entity": str, "transaction": str, "score": float}
Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudOptions(Options):
    """Options of FraudDetection; `keys` is the number of customers, a seventeenth of the rows by default.

    threshold    the score above which a transaction leaves
    model        a file with a transition matrix, the states in its first line; one of our own without it
    fraud_share  share of the customers whose transactions follow no model
    """

    threshold: float = 0.96
    model: str = ""
    fraud_share: float = 0.01


@cache
def load_model(file: str) -> Matrix:
    """Return the probability of each state after each, by the order of `STATES`."""
    if file:
        lines = Path(file).read_text(encoding="utf-8").split()
        order = [lines[0].split(",").index(state) for state in STATES]
        table = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])
        return table[np.ix_(order, order)]
    weights = np.outer(np.outer([0.33, 0.5, 0.17], [0.85, 0.15]).ravel(), [0.32, 0.46, 0.22]).ravel()
    habits = 0.9 * weights + 0.1 * np.eye(len(STATES))  # customers tend to do the same again
    return np.asarray(habits / habits.sum(axis=1, keepdims=True))


def generate(options: FraudOptions) -> Tables:
    """Make transactions: most customers follow the model, a few do anything."""
    chance = np.random.default_rng(options.seed)
    n = options.rows
    n_customers = options.keys or min(len(LETTERS) ** 3, max(1, n // PER_CUSTOMER))
    customers = chance.integers(0, n_customers, n)
    states = draw_states(customers, chance, options, n_customers)
    digits = customers[:, None] // len(LETTERS) ** np.arange(max(3, len(str(n_customers)) - 2)) % len(LETTERS)
    rows = pa.table(
        {
            "time": draw_times(chance, n, options.rate),
            "entity": spell(digits),
            "transaction": spell(chance.integers(0, len(LETTERS), (n, 12))),
            "state": pa.array(STATES).take(pa.array(states)),
        }
    )
    return {"transactions": let_arrive(rows, chance, options)}


def load(file: Path) -> Tables:
    """Read a file of the benchmark suites: customer, transaction, kind. It has no times."""
    names = ("entity", "transaction", "state")
    return {"transactions": read_csv(file, names, types=dict.fromkeys(names, pa.string()))}


def draw_states(
    customers: Matrix, chance: np.random.Generator, options: FraudOptions, n_customers: int
) -> Matrix:
    """Draw a state for each transaction: the n-th of all customers at once, after their one before."""
    steps = np.cumsum(load_model(options.model), axis=1)
    frauds = chance.random(n_customers) < options.fraud_share
    steps[:, -1] = 1.0
    by_customer = np.argsort(customers, kind="stable")
    starts = np.flatnonzero(np.diff(customers[by_customer], prepend=-1))
    turn = np.arange(len(customers)) - np.repeat(starts, np.diff(starts, append=len(customers)))
    current = chance.integers(0, len(STATES), n_customers)
    states = np.empty(len(customers), np.int64)
    by_turn = np.argsort(turn, kind="stable")
    for members in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
        at = by_customer[members]
        who = customers[at]
        drawn = (steps[current[who]] < chance.random((len(at), 1))).sum(axis=1)
        drawn = np.where(frauds[who], chance.integers(0, len(STATES), len(at)), drawn)
        states[at] = current[who] = drawn
    return states


def spell(digits: Matrix) -> pa.Array:
    """Return rows of numbers below 36 as text."""
    text = np.ascontiguousarray(LETTERS[digits])
    return pa.array(text.view(f"S{text.shape[1]}").ravel()).cast(pa.string())


def build(readers: Mapping[str, Any], writer: Any, options: FraudOptions) -> ps.PipeGraph:
    """Build the graph: the predictor by customer, which keeps the last five kinds, or a count window."""
    graph, rows = open_source("fraud-detection", readers["transactions"], options)
    spread: Any = {"parallelism": options.parallelism, "name": "predictor"}
    misses = 1.0 - load_model(options.model)
    if options.form == "columns":
        scored = (
            rows.key_by("entity")
            .window(ps.count_window(WINDOW, every=1), **spread)
            .aggregate(transaction=ps.last("transaction"), states=ps.collect("state"))
            .map(ps.batch(BatchScore(misses), schema=SCORED), name="score")
        )
        frauds = scored.filter(col("score") > options.threshold, name="threshold")
    else:
        predict = Predictor(misses.tolist(), options.threshold)
        frauds = rows.key_by("entity").flat_map(predict, schema=SCORED, state=list, **spread)
    frauds.sink(writer, name="sink")
    return graph


class Predictor:
    """Scores the last transactions of a customer, whose kinds are the state."""

    def __init__(self, misses: list[list[float]], threshold: float) -> None:
        self._misses, self._threshold = misses, threshold
        self._number = {state: i for i, state in enumerate(STATES)}

    def __call__(self, row: ps.Row, last: list[int]) -> Rows:
        """Return the transaction with its score if that is above the threshold."""
        last.append(self._number[row.state])
        if len(last) < WINDOW:
            return []
        score = sum(self._misses[one][other] for one, other in pairwise(last)) / (WINDOW - 1)
        del last[0]
        if score <= self._threshold:
            return []
        return [{"entity": row.entity, "transaction": row.transaction, "score": score}]


class BatchScore:
    """Scores windows of five kinds, a batch at a time."""

    def __init__(self, misses: Matrix) -> None:
        self._misses = misses

    def __call__(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the last transaction of each window and the window's score."""
        states = pc.index_in(windows["states"].flatten(), pa.array(STATES)).to_numpy()
        kinds = states.reshape(-1, WINDOW)
        steps = self._misses[kinds[:, :-1], kinds[:, 1:]]
        score = pa.array(steps.sum(axis=1) / (WINDOW - 1))
        return pa.record_batch([windows["entity"], windows["transaction"], score], names=list(SCORED))


def recount(tables: Tables, options: FraudOptions) -> Rows:
    """Score every five transactions of each customer that follow each other."""
    model = load_model(options.model)
    by_customer = defaultdict(list)
    for row in in_order(tables["transactions"]):
        by_customer[row["entity"]].append(row)
    frauds = []
    for entity, rows in by_customer.items():
        for end in range(WINDOW, len(rows) + 1):
            kinds = [STATES.index(row["state"]) for row in rows[end - WINDOW : end]]
            score = sum(1.0 - model[one][other] for one, other in pairwise(kinds)) / (WINDOW - 1)
            if score > options.threshold:
                answer = {"entity": entity, "transaction": rows[end - 1]["transaction"], "score": score}
                frauds.append(answer)
    return frauds


FRAUD_DETECTION = Application(
    name="fraud-detection",
    label="FD",
    paper="WindFlow",
    summary="transactions that hardly follow from the four before them (Markov model)",
    reads="time, entity, transaction, state; or a file of the suites: entity, transaction, state",
    forms=("rows", "columns"),
    options=FraudOptions,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
