"""VoipStream: telemarketers among the callers of a telephone network, by a score for every call.

The score of a caller is a weighted sum of three parts, each between 0 and 1: calls made by calls received
(FoFiR), calls to new numbers by all calls (URL), and the mean duration by that of all callers (ACD). Rates
decay with time. The suites estimate them by Bloom filters in memory of fixed size; here they are exact,
because a state per key is at hand. A call has a score if it was established and its callee is new to the
caller. The graph is the suite's "reordering" one, that of WindFlow's Table 3. WindFlow, 5.1; Bianchi et al.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import col
from penstock.apps.application import (
    Application,
    Options,
    Rows,
    Tables,
    draw_keys,
    draw_times,
    in_order,
    let_arrive,
    open_source,
    read_csv,
)

SLOW, FAST = 0.9917, 0.9672
"""What is left of a rate after a unit of time: of those over a day, and of the others."""
AGE, WARM_UP = 86_400, 10
FOFIR, URL, ACD = (10.0, 2.0), (1.0, 3.0), (10.0, 3.0)
"""The value from which a part is 1, and its weight."""
PARSED = {
    "time": int,
    "call": int,
    "caller": str,
    "callee": str,
    "duration": int,
    "established": bool,
    "all": int,
}
DISPATCHED = {**PARSED, "new": bool}
RATED = {**DISPATCHED, "ecr": float}
PART = {"caller": str, "call": int, "part": str, "value": float}
PARTY = {
    "number": str,
    "received": bool,
    **{name: RATED[name] for name in ("time", "call", "caller", "established", "new", "ecr")},
}
PARTY_RATE = {"caller": str, "call": int, "ecr": float, "value": float}
SCORE = {"caller": str, "call": int, "score": float}
Part = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions(Options):
    """Options of VoipStream; `keys` is the number of callers, a tenth of the rows by default.

    rate             calls per second
    telemarketers    share of the callers that call many numbers, briefly, and are never called
    unit_us          the unit of time in which rates decay: a second, as on Flink; WindFlow's suite takes
                     milliseconds by mistake
    parse_durations  False leaves all durations 0, as WindFlow's suite does by mistake
    """

    rate: float = 100.0
    telemarketers: float = 0.01
    unit_us: int = 1_000_000
    parse_durations: bool = True


def generate(options: CallOptions) -> Tables:
    """Make calls between people, who have friends, and by telemarketers, who call anybody."""
    chance = np.random.default_rng(options.seed)
    n, n_callers = options.rows, options.keys or max(10, options.rows // 10)
    n_sellers = max(1, int(n_callers * options.telemarketers))
    by_seller = chance.random(n) < 10 * options.telemarketers
    callers = np.where(by_seller, chance.integers(0, n_sellers, n), chance.integers(n_sellers, n_callers, n))
    friends = callers + 1 + draw_keys(chance, n, min(20, n_callers), 1.0)
    people = np.where(by_seller, chance.integers(0, n_callers, n), friends) % max(1, n_callers - n_sellers)
    durations = np.where(by_seller, chance.exponential(20, n), chance.exponential(180, n)).astype(np.int64)
    numbers = pa.array([f"{49_170_000_000 + 7 * i}" for i in range(n_callers)])
    rows = pa.table(
        {
            "time": draw_times(chance, n, options.rate),
            "call": np.arange(n),
            "caller": numbers.take(pa.array(callers)),
            "callee": numbers.take(pa.array(people + n_sellers)),
            "duration": durations,
            "established": chance.random(n) < np.where(by_seller, 0.7, 0.95),
        }
    )
    return {"calls": let_arrive(rows, chance, options)}


def load(file: Path) -> Tables:
    """Read calls: caller, callee, answer time, duration in seconds, and whether it was established."""
    numbers = dict.fromkeys(("caller", "callee"), pa.string())
    names = ["caller", "callee", "time", "duration", "established"]
    rows = read_csv(file, names, time="time", types={**numbers, "established": pa.bool_()})
    return {"calls": rows.add_column(1, "call", pa.array(np.arange(rows.num_rows)))}


@dataclass
class Rate:
    """A sum that decays with time."""

    value: float = 0.0
    time: int = 0

    def at(self, time: int, beta: float, unit_us: int) -> float:
        """Let the sum decay until a time, and return it."""
        self.value *= beta ** ((time - self.time) / unit_us)
        self.time = time
        return self.value

    def add(self, amount: float, beta: float) -> float:
        """Add to the sum, and return it."""
        self.value += amount * math.log(1 / beta)
        return self.value


def build(readers: Mapping[str, Any], writer: Any, options: CallOptions) -> ps.PipeGraph:
    """Build the graph: parser, dispatcher, ECR; five branches of rates; two merges of their parts."""
    graph, source = open_source("voip-stream", readers["calls"], options)
    duration = col("duration") if options.parse_durations else ps.lit(0)
    calls = ("time", "call", "caller", "callee")
    parsed = source.select(
        *calls,
        duration=duration,
        established=col("established"),
        all=ps.lit(0),
        parallelism=options.parallelism,
        name="parser",
    )
    dispatched = parsed.key_by("caller", "callee").map(
        dispatch, schema=DISPATCHED, state=list, name="dispatcher"
    )
    rated = dispatched.key_by("caller").map(CallRate(options), schema=RATED, state=Rate, name="ECR")

    by_caller = rated.key_by("caller")
    talk = by_caller.flat_map(TalkTime(options), schema=PART, state=Rate, name="CT24")
    mean = rated.key_by("all").flat_map(MeanDuration(), schema=PART, state=Average, name="GlobalACD")
    slow = by_caller.flat_map(SlowRate(options), schema=PART, state=Rate, name="ECR24")
    parties = rated.flat_map(list_parties, schema=PARTY, name="preRCR")
    received = parties.key_by("number").flat_map(
        ReceivedRate(options), schema=PARTY_RATE, state=Rate, name="RCR"
    )
    ratio = received.key_by("caller").flat_map(rate_calls, schema=PART, name="FoFiR", routing="key_by")
    fresh = by_caller.flat_map(NewRate(options), schema=PARTY_RATE, state=Rate, name="ENCR")
    url = fresh.key_by("caller").flat_map(rate_news, schema=PART, name="URL", routing="key_by")

    acd = talk.merge(mean, slow).key_by("caller").flat_map(rate_duration, schema=PART, state=dict, name="ACD")
    scores = (
        acd.merge(ratio, url).key_by("caller").flat_map(add_parts, schema=SCORE, state=dict, name="Score")
    )
    scores.sink(writer, name="sink")
    return graph


def dispatch(row: ps.Row, seen: list[bool]) -> dict[str, Any]:
    """Return the call, and whether the caller has never called that number before."""
    is_new = not seen
    if is_new:
        seen.append(True)
    return {**row, "new": is_new}


class RateStep:
    """An operator that keeps a rate per key."""

    beta = FAST

    def __init__(self, options: CallOptions) -> None:
        self._unit_us = options.unit_us

    def decay(self, row: ps.Row, rate: Rate) -> float:
        """Return the rate of a key at the time of a call, before it."""
        return rate.at(row.time, self.beta, self._unit_us)


class CallRate(RateStep):
    """ECR: calls of the caller that were established."""

    def __call__(self, row: ps.Row, rate: Rate) -> dict[str, Any]:
        """Return the call with the rate."""
        value = self.decay(row, rate)
        if row.established:
            value = rate.add(1.0, self.beta)
        return {**row, "ecr": value}


class SlowRate(RateStep):
    """ECR24: the same over a day."""

    beta = SLOW

    def __call__(self, row: ps.Row, rate: Rate) -> list[Part]:
        """Return the rate, for calls that have a score."""
        value = self.decay(row, rate)
        if row.established:
            value = rate.add(1.0, self.beta)
        return part_of(row, "ECR24", value)


class TalkTime(RateStep):
    """CT24: how long the caller has talked to new numbers."""

    beta = SLOW

    def __call__(self, row: ps.Row, rate: Rate) -> list[Part]:
        """Return the rate, for calls that have a score."""
        self.decay(row, rate)
        return part_of(row, "CT24", rate.add(float(row.duration), self.beta)) if has_score(row) else []


class NewRate(RateStep):
    """ENCR: calls of the caller to new numbers."""

    def __call__(self, row: ps.Row, rate: Rate) -> list[Part]:
        """Return both rates of the caller, for calls that have a score."""
        self.decay(row, rate)
        if not has_score(row):
            return []
        value = rate.add(1.0, self.beta)
        return [{"caller": row.caller, "call": row.call, "ecr": row.ecr, "value": value}]


class ReceivedRate(RateStep):
    """RCR: calls that a number has received. The callee's row is counted, the caller's row is answered."""

    def __call__(self, row: ps.Row, rate: Rate) -> list[Part]:
        """Return what the caller has received."""
        value = self.decay(row, rate)
        if row.received:
            if row.established:
                rate.add(1.0, self.beta)
            return []
        if not has_score(row):
            return []
        return [{"caller": row.caller, "call": row.call, "ecr": row.ecr, "value": value}]


@dataclass
class Average:
    """An average of all calls: plain for the first ten, then one that forgets slowly."""

    n: int = 0
    value: float = 0.0

    def add(self, duration: float) -> float:
        """Add a duration and return the average."""
        self.n += 1
        weight = 1 / self.n if self.n <= WARM_UP else 2 / (AGE + 1)
        self.value += (duration - self.value) * weight
        return self.value


class MeanDuration:
    """GlobalACD: the mean duration of all calls."""

    def __call__(self, row: ps.Row, average: Average) -> list[Part]:
        """Return the average, for calls that have a score."""
        return part_of(row, "GlobalACD", average.add(float(row.duration)))


def has_score(row: Any) -> bool:
    """Return whether a call is one of those that are rated."""
    return bool(row.established and row.new)


def part_of(row: ps.Row, name: str, value: float) -> list[Part]:
    """Return a part for a call that has a score."""
    if not has_score(row):
        return []
    return [{"caller": row.caller, "call": row.call, "part": name, "value": value}]


def list_parties(row: ps.Row) -> Rows:
    """Return a call twice: for the caller, and for the callee."""
    shared = {name: row[name] for name in list(PARTY)[2:]}
    outgoing = {"number": row.caller, "received": False, **shared}
    return [outgoing, {"number": row.callee, "received": True, **shared}]


def limit(value: float, scale: tuple[float, float]) -> float:
    """Return a value as a part of the score: 1 from the scale's upper end on."""
    return min(1.0, value / scale[0])


def divide(one: float, other: float) -> float:
    """Return a quotient; by nothing it is as large as can be, unless it is nothing by nothing."""
    return one / other if other else math.inf if one else 0.0


def rate_calls(row: ps.Row) -> list[Part]:
    """Return FoFiR: calls made by calls received."""
    value = limit(divide(row.ecr, row.value), FOFIR)
    return [{"caller": row.caller, "call": row.call, "part": "FoFiR", "value": value}]


def rate_news(row: ps.Row) -> list[Part]:
    """Return URL: calls to new numbers by all calls."""
    value = limit(divide(row.value, row.ecr), URL)
    return [{"caller": row.caller, "call": row.call, "part": "URL", "value": value}]


def put_together(row: ps.Row, parts: dict[int, dict[str, float]]) -> dict[str, float] | None:
    """Add a part to those of its call, and return them if they are three."""
    of_call = parts.setdefault(row.call, {})
    of_call[row.part] = row.value
    return parts.pop(row.call) if len(of_call) == 3 else None


def rate_duration(row: ps.Row, parts: dict[int, dict[str, float]]) -> list[Part]:
    """Return ACD: the mean duration of the caller by that of all."""
    whole = put_together(row, parts)
    if whole is None:
        return []
    value = limit(divide(divide(whole["CT24"], whole["ECR24"]), whole["GlobalACD"]), ACD)
    return [{"caller": row.caller, "call": row.call, "part": "ACD", "value": value}]


def add_parts(row: ps.Row, parts: dict[int, dict[str, float]]) -> Rows:
    """Return the score of a call whose three parts are there."""
    whole = put_together(row, parts)
    if whole is None:
        return []
    score = FOFIR[1] * whole["FoFiR"] + URL[1] * whole["URL"] + ACD[1] * whole["ACD"]
    return [{"caller": row.caller, "call": row.call, "score": score}]


def recount(tables: Tables, options: CallOptions) -> Rows:
    """Score the calls one after the other, with all sums in dictionaries."""
    sums: dict[Any, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    seen: set[tuple[str, str]] = set()
    average, scores = 0.0, []

    def rate(name: str, key: str, time: int, beta: float, amount: float) -> float:
        value, before = sums[name, key]
        value = value * float(beta ** ((time - before) / options.unit_us)) + amount * math.log(1 / beta)
        sums[name, key] = value, time
        return value

    for i, call in enumerate(in_order(tables["calls"]), start=1):
        caller, callee, time = call["caller"], call["callee"], call["time"]
        duration = float(call["duration"]) if options.parse_durations else 0.0
        established = call["established"]
        is_rated = established and (caller, callee) not in seen
        seen.add((caller, callee))
        average += (duration - average) * (1 / i if i <= WARM_UP else 2 / (AGE + 1))
        ecr = rate("ECR", caller, time, FAST, float(established))
        slow = rate("ECR24", caller, time, SLOW, float(established))
        talk = rate("CT24", caller, time, SLOW, duration * is_rated)
        fresh = rate("ENCR", caller, time, FAST, float(is_rated))
        received = rate("RCR", caller, time, FAST, 0.0)
        rate("RCR", callee, time, FAST, float(established))
        if is_rated:
            fofir = min(1.0, ecr / received / 10) if received else 1.0
            duration_ratio = min(1.0, talk / slow / average / 10) if average else float(talk > 0)
            score = 2 * fofir + 3 * min(1.0, fresh / ecr) + 3 * duration_ratio
            scores.append({"caller": caller, "call": call["call"], "score": score})
    return scores


VOIP_STREAM = Application(
    name="voip-stream",
    label="VS",
    paper="WindFlow",
    summary="telemarketers among callers, by a score for every call",
    reads="time, call, caller, callee, duration, established; or a file of calls without their numbers",
    options=CallOptions,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
