"""SWA, YSB and YSB* in Flink SQL at a rate, for the search of the sustainable throughput.

Flink's own generator paces the rows (`rows-per-second`); times follow from the running number, as those of
rows that the other systems get. Results are read as they come, each with its moment on this process's clock.
A job that is over its rate is not waited for longer than half the time that rows should have taken.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Thread
from typing import Any

from child import Rows, serve
from on_flink import micros, open_tables

N_ADS, ADS_EACH, ROUND = 1_000, 10, 100_000
START_S, LEAST_PATIENCE_S = 60.0, 4.0


class Counts:
    """SWA: all rows per window."""

    sql = "SELECT window_end, CAST(COUNT(*) AS DOUBLE) FROM {events} GROUP BY window_start, window_end"

    def prepare(self, folder: Path) -> None:
        """Declare the generator and the views that queries use."""
        self.feed = feed = json.loads((folder / "feed.json").read_text())
        self.tables = open_tables()
        begin, tick, per_tick = feed["begin"], feed["tick_us"], feed["per_tick"]
        # Two rows more close the last windows: the watermark of each of the two subtasks must pass them.
        last = feed["n_rows"] + 1
        time_of = (
            f"CASE WHEN v >= {feed['n_rows']} THEN {begin + 10 * feed['size']} + v / {per_tick} * {tick} "
            f"ELSE {begin} + v / {per_tick} * {tick} + MOD(v, {per_tick}) * {tick} / {per_tick} END"
        )
        self.tables.execute_sql(f"""
            CREATE TABLE numbers (
              v BIGINT,
              ts AS TO_TIMESTAMP_LTZ(({time_of}) / 1000, 3),
              WATERMARK FOR ts AS ts
            ) WITH ('connector' = 'datagen', 'rows-per-second' = '{feed["rate"]}',
              'fields.v.kind' = 'sequence', 'fields.v.start' = '0', 'fields.v.end' = '{last}')
        """)
        number = f"MOD(MOD(v, {per_tick}), {ROUND})"
        self.tables.execute_sql(
            f"CREATE VIEW events AS SELECT MOD({number}, {N_ADS}) AS ad, MOD({number}, 3) AS event_type, ts "  # noqa: S608
            "FROM numbers"
        )
        for name, kind in (("viewed", 0), ("clicked", 1)):
            self.tables.execute_sql(
                f"CREATE VIEW {name} AS SELECT ad / {ADS_EACH} AS campaign, ts FROM events "  # noqa: S608
                f"WHERE event_type = {kind}"
            )

    def windows_of(self, view: str) -> str:
        """Return the windows of a view, as SQL."""
        size, every = self.feed["size"] / 1e6, self.feed["every"] / 1e6
        if size == every:
            return f"TABLE(TUMBLE(TABLE {view}, DESCRIPTOR(ts), INTERVAL '{size:.3f}' SECOND(2, 3)))"
        spans = f"INTERVAL '{every:.3f}' SECOND(2, 3), INTERVAL '{size:.3f}' SECOND(2, 3)"
        return f"TABLE(HOP(TABLE {view}, DESCRIPTOR(ts), {spans}))"

    def run(self) -> None:
        """Run the job until its end, or until it is late by half of its time."""
        views = {name: self.windows_of(name) for name in ("events", "viewed", "clicked")}
        result = self.tables.execute_sql(self.sql.format(**views))
        self.rows: list[Any] = []
        reading = Thread(target=self._read, args=(result,), daemon=True)
        reading.start()
        begun = time.perf_counter()
        while not self.rows and reading.is_alive() and time.perf_counter() - begun < START_S:
            time.sleep(0.05)
        reading.join(self.feed["seconds"] + max(LEAST_PATIENCE_S, self.feed["seconds"] / 2))
        if reading.is_alive():
            result.get_job_client().cancel().result()
            reading.join()

    def _read(self, result: Any) -> None:
        try:
            with result.collect() as results:
                for end, value in results:
                    self.rows.append((end, time.perf_counter(), value))
        except Exception as error:  # a job that was cancelled ends its results with an error
            if "cancel" not in str(error).lower():
                raise

    def answer(self) -> Rows:
        """Return the end of the window in microseconds, the moment in seconds, the value."""
        return [[micros(end), moment, value] for end, moment, value in self.rows]


class Views(Counts):
    """YSB: views per campaign and window."""

    sql = """
        SELECT window_end, CAST(COUNT(*) AS DOUBLE) FROM {viewed}
        GROUP BY campaign, window_start, window_end
    """


class Ratios(Counts):
    """YSB*: views and clicks per campaign and window, joined by window, and the ratio of the two."""

    sql = """
        SELECT v.window_end, CAST(c.n AS DOUBLE) / v.n FROM (
          SELECT campaign, window_start, window_end, COUNT(*) AS n FROM {viewed}
          GROUP BY campaign, window_start, window_end) v
        JOIN (
          SELECT campaign, window_start, window_end, COUNT(*) AS n FROM {clicked}
          GROUP BY campaign, window_start, window_end) c
        ON v.campaign = c.campaign AND v.window_start = c.window_start AND v.window_end = c.window_end
    """


if __name__ == "__main__":
    serve({"swa": Counts, "ysb": Views, "ysb-star": Ratios})
