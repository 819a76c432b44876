"""The queries in Bytewax, written as in its manual: functions on rows, and its own windows.

Rows are tuples in memory and come in batches of a thousand. The clock waits for a day: rows are in order,
but while Bytewax is slower than the event time of the rows, its watermark would overtake them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
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
    serve({"swa": Counts, "ysb": Views, "ysb-star": Ratios, "word-count": Words})
