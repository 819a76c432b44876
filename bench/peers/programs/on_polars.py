"""The queries in Polars over data at rest in memory: no streams, no watermarks; a floor of cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from child import Rows, serve

WINDOW = 10_000_000
START = (pl.col("time") // WINDOW * WINDOW).alias("start")


class Views:
    """YSB: views per campaign and ten seconds."""

    def prepare(self, folder: Path) -> None:
        """Load the events and the campaigns."""
        self.events = pl.read_ipc(folder / "events.arrow").rechunk()
        self.campaigns = pl.read_ipc(folder / "campaigns.arrow")

    def run(self) -> None:
        """Run the query."""
        self.result: Any = self._count(0).collect()

    def _count(self, kind: int) -> Any:
        seen = self.events.lazy().filter(pl.col("event_type") == kind)
        joined = seen.join(self.campaigns.lazy(), on="ad")
        return joined.group_by("campaign", START).agg(pl.len().alias("n"), pl.col("time").max().alias("last"))

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, views."""
        return [list(row) for row in self.result.select("campaign", "start", "n").rows()]


class Counts(Views):
    """SWA: all rows per ten seconds."""

    def run(self) -> None:
        """Run the query."""
        self.result = self.events.lazy().group_by(START).agg(pl.len().alias("n")).collect()

    def answer(self) -> Rows:
        """Return window start in microseconds, rows."""
        return [list(row) for row in self.result.select("start", "n").rows()]


class Ratios(Views):
    """YSB*: views and clicks per campaign and ten seconds, and the ratio of the two."""

    def run(self) -> None:
        """Run the query."""
        joined = self._count(0).join(self._count(1), on=["campaign", "start"], suffix="_clicked")
        self.result = joined.with_columns(n=pl.col("n_clicked") / pl.col("n")).collect()


class Words:
    """WordCount: the count of each word."""

    def prepare(self, folder: Path) -> None:
        """Load the lines."""
        self.lines = pl.DataFrame({"line": (folder / "lines.txt").read_text().splitlines()})

    def run(self) -> None:
        """Run the query."""
        words = self.lines.lazy().select(word=pl.col("line").str.split(" ")).explode("word")
        self.result = words.filter(pl.col("word") != "").group_by("word").len().collect()

    def answer(self) -> Rows:
        """Return word and count."""
        return [list(row) for row in self.result.rows()]


class Frauds:
    """FraudDetection: the mean of what the last four transitions of a customer had against them."""

    def prepare(self, folder: Path) -> None:
        """Load the transactions and the model."""
        self.rows = pl.read_ipc(folder / "transactions.arrow").rechunk()
        self.model = json.loads((folder / "model.json").read_text())

    def run(self) -> None:
        """Run the query."""
        states = self.model["states"]
        misses = pl.Series([miss for row in self.model["misses"] for miss in row])
        numbers = dict(zip(states, range(len(states)), strict=True))
        kind = pl.col("state").replace_strict(numbers, return_dtype=pl.Int64)
        kinds = self.rows.lazy().with_columns(kind=kind)
        pairs = kinds.with_columns(pair=pl.col("kind").shift(1).over("entity") * len(states) + pl.col("kind"))
        steps = pairs.with_columns(step=pl.lit(misses).gather(pl.col("pair")))
        four = sum((pl.col("step").shift(back).over("entity") for back in (1, 2, 3)), pl.col("step"))
        scores = steps.with_columns(score=four / 4).filter(pl.col("score") > self.model["threshold"])
        self.result: Any = scores.select("entity", "transaction", "score").collect()

    def answer(self) -> Rows:
        """Return customer, transaction, score."""
        return [list(row) for row in self.result.rows()]


class Spikes:
    """SpikeDetection: values far from the mean of the last 1,000 of their device."""

    def prepare(self, folder: Path) -> None:
        """Load the readings."""
        self.rows = pl.read_ipc(folder / "readings.arrow").rechunk()

    def run(self) -> None:
        """Run the query."""
        average = pl.col("value").rolling_mean(1_000).over("device")
        averages = self.rows.lazy().with_columns(average=average)
        far = (pl.col("value") - pl.col("average")).abs() > 0.25 * pl.col("average")
        self.result: Any = averages.filter(far).select("time", "device", "value", "average").collect()

    def answer(self) -> Rows:
        """Return time, device, value, average."""
        return [list(row) for row in self.result.rows()]


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
