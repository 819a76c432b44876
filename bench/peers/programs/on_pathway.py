"""The queries in Pathway, written as in its manual: tables, expressions and `windowby`, over data at rest.

Rows are read from csv with only the columns that are used, which is quicker than Pathway's way in for data
frames (`table_from_pandas`); the run is in its batch mode, which spares it the commits of a stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pathway as pw
import pyarrow.csv
import pyarrow.ipc
from child import Rows, serve

WINDOW = 10_000_000


class Event(pw.Schema):  # type: ignore[misc]  # not installed beside ours
    """The columns of an event that are used."""

    ad: int
    event_type: int
    time: int


class Campaign(pw.Schema):  # type: ignore[misc]
    """An advertisement and its campaign."""

    ad: int
    campaign: int


class Views:
    """YSB: views per campaign and ten seconds."""

    def prepare(self, folder: Path) -> None:
        """Load the columns that are used."""
        self.folder = folder
        write_csv(folder / "events.arrow", ["ad", "event_type", "time"])
        write_csv(folder / "campaigns.arrow", ["ad", "campaign"])

    def run(self) -> None:
        """Build the tables and compute the result."""
        events = read_csv(self.folder / "events.csv", Event)
        self.result = compute(self._count(events, 0))

    def _count(self, events: Any, kind: int) -> Any:
        campaigns = read_csv(self.folder / "campaigns.csv", Campaign)
        views = events.filter(pw.this.event_type == kind)
        joined = views.join(campaigns, pw.left.ad == pw.right.ad).select(pw.left.time, pw.right.campaign)
        windows = joined.windowby(
            joined.time, window=pw.temporal.tumbling(duration=WINDOW), instance=joined.campaign
        )
        return windows.reduce(
            campaign=pw.this._pw_instance, start=pw.this._pw_window_start, n=pw.reducers.count()
        )

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, views."""
        return rows_of(self.result, ["campaign", "start", "n"])


class Counts(Views):
    """SWA: all rows per ten seconds."""

    def run(self) -> None:
        """Build the table and compute the result."""
        events = read_csv(self.folder / "events.csv", Event)
        windows = events.windowby(events.time, window=pw.temporal.tumbling(duration=WINDOW))
        self.result = compute(windows.reduce(start=pw.this._pw_window_start, n=pw.reducers.count()))

    def answer(self) -> Rows:
        """Return window start in microseconds, rows."""
        return rows_of(self.result, ["start", "n"])


class Ratios(Views):
    """YSB*: views and clicks per campaign and ten seconds, and the ratio of the two."""

    def run(self) -> None:
        """Build the tables and compute the result."""
        events = read_csv(self.folder / "events.csv", Event)
        views, clicks = self._count(events, 0), self._count(events, 1)
        joined = views.join(clicks, pw.left.campaign == pw.right.campaign, pw.left.start == pw.right.start)
        ratios = joined.select(pw.left.campaign, pw.left.start, n=pw.right.n / pw.left.n)
        self.result = compute(ratios)


class Words:
    """WordCount: the count of each word."""

    def prepare(self, folder: Path) -> None:
        """Remember where the lines are; Pathway reads text by itself."""
        self.path = folder / "lines.txt"

    def run(self) -> None:
        """Build the table and compute the result."""
        lines = pw.io.plaintext.read(str(self.path), mode="static")
        words = lines.select(word=split_line(pw.this.data)).flatten(pw.this.word)
        self.result = compute(words.groupby(pw.this.word).reduce(pw.this.word, n=pw.reducers.count()))

    def answer(self) -> Rows:
        """Return word and count."""
        return [[word, n] for word, n in rows_of(self.result, ["word", "n"]) if word]


@pw.udf  # type: ignore[untyped-decorator]
def split_line(line: str) -> list[str]:
    """Return the words of a line; Pathway's own text functions cannot split."""
    return line.split(" ")


def write_csv(path: Path, names: list[str]) -> None:
    """Write columns of an Arrow file as csv beside it."""
    table = pyarrow.ipc.open_file(path).read_all().select(names)
    pyarrow.csv.write_csv(table, path.with_suffix(".csv"))


def read_csv(path: Path, schema: type[pw.Schema]) -> Any:
    """Return the table of a csv file."""
    return pw.io.csv.read(str(path), schema=schema, mode="static")


def compute(table: Any) -> pd.DataFrame:
    """Run the graph of a table and return its rows; the graph is forgotten, so that runs do not add up."""
    frame = pw.debug.table_to_pandas(table, include_id=False)
    pw.internals.parse_graph.G.clear()
    return frame


def rows_of(frame: pd.DataFrame, names: list[str]) -> Rows:
    """Return rows of plain values."""
    return [list(row) for row in zip(*(frame[name].tolist() for name in names), strict=True)]


if __name__ == "__main__":
    serve({"swa": Counts, "ysb": Views, "ysb-star": Ratios, "word-count": Words})
