"""The queries in Bytewax, written as in its manual: functions on rows, and its own windows.

Rows are tuples in memory and come in batches of a thousand. The clock waits for a day: rows are in order,
but while Bytewax is slower than the event time of the rows, its watermark would overtake them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.ipc
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main
from child import Rows, serve

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=10)
CLOCK = win.EventClock(lambda row: row[-1], wait_for_system_duration=timedelta(days=1))
WINDOWER = win.TumblingWindower(length=WINDOW, align_to=EPOCH)
BATCH = 1_000


class Views:
    """YSB: views per campaign and ten seconds."""

    def prepare(self, folder: Path) -> None:
        """Make tuples of (advertisement, event type, time)."""
        self.rows, self.campaign_of = load_events(folder)

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.counts: list[Any] = []
        flow = Dataflow("ysb")
        events = op.input("events", flow, TestingSource(self.rows, batch_size=BATCH))
        views = op.filter("views", events, lambda row: row[1] == 0)
        joined = op.map("campaigns", views, lambda row: (self.campaign_of[row[0]], row[2]))
        counted = win.count_window("count", joined, CLOCK, WINDOWER, lambda row: row[0])
        op.output("out", counted.down, TestingSink(self.counts))
        run_main(flow)

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, views."""
        return [[int(key), window * 10_000_000, n] for key, (window, n) in self.counts]


class Counts(Views):
    """SWA: all rows per ten seconds."""

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.counts = []
        flow = Dataflow("swa")
        events = op.input("events", flow, TestingSource(self.rows, batch_size=BATCH))
        counted = win.count_window("count", events, CLOCK, WINDOWER, lambda row: "0")
        op.output("out", counted.down, TestingSink(self.counts))
        run_main(flow)

    def answer(self) -> Rows:
        """Return window start in microseconds, rows."""
        return [[window * 10_000_000, n] for _, (window, n) in self.counts]


class Ratios(Views):
    """YSB*: views and clicks per campaign and ten seconds, and the ratio of the two."""

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.counts = []
        flow = Dataflow("ysb-star")
        events = op.input("events", flow, TestingSource(self.rows, batch_size=BATCH))
        views = self._count("views", op.filter("only-views", events, lambda row: row[1] == 0))
        clicks = self._count("clicks", op.filter("only-clicks", events, lambda row: row[1] == 1))
        joined = op.join("join", views, clicks)
        op.output("out", joined, TestingSink(self.counts))
        run_main(flow)

    def _count(self, name: str, rows: Any) -> Any:
        joined = op.map(f"{name}-campaign", rows, lambda row: (self.campaign_of[row[0]], row[2]))
        counted = win.count_window(name, joined, CLOCK, WINDOWER, lambda row: row[0])
        return op.map(f"{name}-key", counted.down, lambda one: (f"{one[0]} {one[1][0]}", one[1][1]))

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, clicks per view."""
        keys = [(key.split(), views, clicks) for key, (views, clicks) in self.counts]
        return [
            [int(campaign), int(window) * 10_000_000, clicks / views]
            for (campaign, window), views, clicks in keys
        ]


class Words:
    """WordCount: the running count of each word."""

    def prepare(self, folder: Path) -> None:
        """Load the lines."""
        self.lines = load_lines(folder)

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.counts: list[Any] = []
        flow = Dataflow("word-count")
        lines = op.input("lines", flow, TestingSource(self.lines, batch_size=BATCH))
        words = op.flat_map("split", lines, split_line)
        keyed = op.key_on("word", words, lambda word: word)
        counted = op.stateful_map("count", keyed, lambda n, word: ((n or 0) + 1, (n or 0) + 1))
        op.output("out", counted, TestingSink(self.counts))
        run_main(flow)

    def answer(self) -> Rows:
        """Return word and count."""
        return [[word, n] for word, n in dict(self.counts).items() if word]


class Frauds:
    """FraudDetection: the mean of what the last four transitions of a customer had against them."""

    def prepare(self, folder: Path) -> None:
        """Make tuples of (customer, (transaction, number of its kind))."""
        table = pyarrow.ipc.open_file(folder / "transactions.arrow").read_all()
        model = json.loads((folder / "model.json").read_text())
        numbers = {state: number for number, state in enumerate(model["states"])}
        kinds = [numbers[state] for state in table.column("state").to_pylist()]
        entities, names = (table.column(name).to_pylist() for name in ("entity", "transaction"))
        self.rows = list(zip(entities, zip(names, kinds, strict=True), strict=True))
        self.misses, self.threshold = model["misses"], model["threshold"]

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.scores: list[Any] = []
        flow = Dataflow("fraud-detection")
        rows = op.input("rows", flow, TestingSource(self.rows, batch_size=BATCH))
        scores = op.stateful_map("predictor", rows, self._score)
        frauds = op.filter("threshold", scores, lambda one: one[1][1] > self.threshold)
        op.output("out", frauds, TestingSink(self.scores))
        run_main(flow)

    def _score(self, last: list[int] | None, row: tuple[str, int]) -> tuple[list[int], tuple[str, float]]:
        kinds = [*(last or ()), row[1]]
        if len(kinds) < 5:
            return kinds, (row[0], 0.0)
        score = sum(self.misses[one][other] for one, other in pairwise(kinds)) / 4
        return kinds[1:], (row[0], score)

    def answer(self) -> Rows:
        """Return customer, transaction, score."""
        return [[entity, *scored] for entity, scored in self.scores]


class Spikes:
    """SpikeDetection: values far from the mean of the last 1,000 of their device."""

    def prepare(self, folder: Path) -> None:
        """Make tuples of (device, (time, value))."""
        table = pyarrow.ipc.open_file(folder / "readings.arrow").read_all()
        devices = map(str, table.column("device").to_pylist())
        values = zip(*(table.column(name).to_pylist() for name in ("time", "value")), strict=True)
        self.rows = list(zip(devices, values, strict=True))

    def run(self) -> None:
        """Run the dataflow to its end."""
        self.spikes: list[Any] = []
        flow = Dataflow("spike-detection")
        rows = op.input("rows", flow, TestingSource(self.rows, batch_size=BATCH))
        averages = op.stateful_map("average", rows, self._average)
        op.output("out", op.filter("spikes", averages, is_spike), TestingSink(self.spikes))
        run_main(flow)

    def _average(self, last: Any, row: tuple[int, float]) -> tuple[Any, tuple[int, float, float | None]]:
        values, total = last if last is not None else (deque[float](), 0.0)
        values.append(row[1])
        total += row[1]
        if len(values) > 1_000:
            total -= values.popleft()
        average = total / 1_000 if len(values) == 1_000 else None
        return (values, total), (*row, average)

    def answer(self) -> Rows:
        """Return time, device, value, average."""
        return [[time, int(device), value, average] for device, (time, value, average) in self.spikes]


def is_spike(row: tuple[str, tuple[int, float, float | None]]) -> bool:
    """Return whether a value is far from the average."""
    _, (_, value, average) = row
    return average is not None and abs(value - average) > 0.25 * average


def split_line(line: str) -> Iterable[str]:
    """Return the words of a line."""
    return line.split(" ")


def load_events(folder: Path) -> tuple[list[tuple[int, int, datetime]], list[str]]:
    """Return the events as tuples, and the campaign of each advertisement as text, as keys must be."""
    table = pyarrow.ipc.open_file(folder / "events.arrow").read_all()
    times = [EPOCH + timedelta(microseconds=at) for at in table.column("time").to_pylist()]
    ads, kinds = table.column("ad").to_pylist(), table.column("event_type").to_pylist()
    campaigns = pyarrow.ipc.open_file(folder / "campaigns.arrow").read_all()
    return list(zip(ads, kinds, times, strict=True)), list(map(str, campaigns.column("campaign").to_pylist()))


def load_lines(folder: Path) -> list[str]:
    """Return the lines of the text."""
    return (folder / "lines.txt").read_text().splitlines()


if __name__ == "__main__":
    serve(
        {
            "swa": Counts,
            "ysb": Views,
            "ysb-star": Ratios,
            "word-count": Words,
            "fraud-detection": Frauds,
            "spike-detection": Spikes,
        }
    )
