"""What a layout of cells is worth: bandwidth and latency of m x n cells (DP-Join, 3.3 and 5).

The numbers in brackets are the paper's expressions. X is the left, spread over m rows of cells; Y is the
right, spread over n columns. T_on is the time of one comparison, p the share of comparisons that are hits.

    bandwidth wanted     B_max = (rate_x W_y + rate_y W_x) p = 2 rate_x rate_y T_w p          (3, 4)
    bandwidth offered    B_mn = m n / T_on p, and m n as much as one cell                     (5, 6)
    latency of a left    L_x = W_y T_on / 2n + the hops along its row of cells                (7)
    latency              L = p_x L_x + p_y L_y                                                (8)
    of equal streams     L = rate T_on T_w (m + n) / 4mn                                      (9)

In (9) the paper has a factor p more, which (7) has cancelled. A hop is the delay from a cell to the next,
which the paper measures and leaves out of its expressions (5.3.2): on average a row passes half of the cells
that it has to reach. Where an index serves the join, a row costs the same however much is stored, so more
cells are only more hops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from penstock.frozen import Frozen

Layout = tuple[int, int]

COMPARISON = 0.3e-9
"""Seconds of one comparison, before anything is measured (`python -m bench join`)."""
CELL_DELAY = 20e-6
"""Seconds that one more cell delays a row, before it is measured (`CellThreads`): to wake a thread."""
ASSUMED_RATE = 1_000.0
"""Rows a second of each side that a prediction assumes before anything is measured."""
EXCHANGE = 0.5e-6
"""Seconds to bring a row to one cell behind an exchange, and to take it in there."""
WORTH = 1.2
"""A layout is left for another only if that is so many times as fast."""


class JoinLoad(Frozen):
    """What a join has to do.

    rates       rows a second of the left and of the right
    windows     stored rows of the left and of the right: the rate times how long a row is kept
    comparison  seconds for one
    hit_rate    the share of comparisons that give a pair
    cell_delay  seconds that one more cell delays a row: a hop
    probe       seconds to look one row up, where an index serves the join; None where rows are scanned
    search      seconds that all cells together took for a row, as measured
    """

    rates: tuple[float, float]
    windows: tuple[float, float]
    comparison: float = COMPARISON
    hit_rate: float = 1.0
    cell_delay: float = CELL_DELAY
    probe: float | None = None
    search: float = 0.0

    @classmethod
    def of_streams(
        cls, rates: tuple[float, float], seconds: tuple[float, float], **measured: float
    ) -> JoinLoad:
        """Return the load of streams of these rates, whose rows are kept for so long."""
        return cls(rates, (rates[0] * seconds[0], rates[1] * seconds[1]), **measured)

    @property
    def comparisons(self) -> float:
        """Return the comparisons a second."""
        return self.rates[0] * self.windows[1] + self.rates[1] * self.windows[0]

    @property
    def max_bandwidth(self) -> float:
        """Return the pairs a second that there are to be found (4)."""
        return self.comparisons * self.hit_rate

    @property
    def n_needed(self) -> int:
        """Return the least number of cells that keep up (3.3.3)."""
        if self.probe is not None:
            return max(1, math.ceil(sum(self.rates) * self.probe))
        return max(1, math.ceil(self.comparisons * self.comparison))

    def bandwidth(self, layout: Layout) -> float:
        """Return the pairs a second that a layout gives: what it can (6), or what there is (4)."""
        return min(self.max_bandwidth, layout[0] * layout[1] / self.comparison * self.hit_rate)

    def latency(self, layout: Layout) -> float:
        """Return the average seconds from a row to its pairs (8), if the layout keeps up."""
        m, n = layout
        left, right = self.rates[0] * self.windows[1], self.rates[1] * self.windows[0]
        if left + right == 0:
            return 0.0
        return (left * self._latency_of(1, n) + right * self._latency_of(0, m)) / (left + right)

    def _latency_of(self, opposite: int, n_cells: int) -> float:
        """Return the latency of rows that meet a side spread over so many cells (7), with their hops."""
        delay = self.cell_delay * (n_cells - 1) / 2
        if self.probe is not None:
            return self.probe + delay
        return self.windows[opposite] * self.comparison / (2 * n_cells) + delay

    def measured_latency(self, layout: Layout) -> float:
        """Return the average seconds from a row to its pairs, as it was: of a scan, half of it (7)."""
        return self.search / (layout[0] * layout[1]) / (2 if self.probe is None else 1)

    def choose_layout(self, max_cells: int) -> Layout:
        """Return the layout of up to so many cells with the least latency of those that keep up.

        If none does, one with the most cells: bandwidth grows with their number, whatever their layout (6).
        """
        most = max(m * n for m, n in list_layouts(max_cells))
        needed = min(self.n_needed, most)
        able = [layout for layout in list_layouts(max_cells) if layout[0] * layout[1] >= needed]
        return min(able, key=lambda layout: (self.latency(layout), layout[0] * layout[1]))

    def is_worth(self, now: Layout, new: Layout) -> bool:
        """Return whether a layout is so much better that rows should move for it."""
        before = now[0] * now[1]
        if before < self.n_needed and new[0] * new[1] > before:
            return True
        return self.latency(now) > WORTH * self.latency(new)

    def describe(self, layout: Layout, source_of_rates: str = "") -> str:
        """Return the prediction in words; `source_of_rates` says where the rates are from."""
        left, right = (f"{rate:,.0f}" for rate in self.rates)
        stored = " and ".join(f"{window:,.0f}" for window in self.windows)
        latency = self.latency(layout) * 1e3
        verdict = "keeps up" if layout[0] * layout[1] >= self.n_needed else f"needs {self.n_needed} cells"
        return (
            f"at {left} and {right} rows/s{source_of_rates}, with {stored} rows stored, "
            f"{layout[0]} x {layout[1]} {verdict}: about {latency:.3g} ms"
        )


CellShare = tuple[float, float, float]
"""What a cell has: the part of the left, the part of the right, and the part of all comparisons."""


def share_of_grid(layout: Layout) -> CellShare:
    """Return what each cell of a grid has."""
    m, n = layout
    return 1 / m, 1 / n, 1 / (m * n)


def pipeline_latency(seconds: tuple[float, float], n_cells: float = math.inf) -> float:
    """Return how long pairs wait, on average, until their rows meet in a handshake pipeline (4.2).

    The later row comes when the other is s seconds old, of T; they go towards each other, and meet when the
    one has come as far as the other has left to go, after (T - s) / 2 seconds. On average s is T / 2. In n
    cells rows meet a little sooner, because two that are in one cell have met.

    seconds  how long rows of the left and of the right are kept
    """
    return sum(seconds) / 2 / 4 * (1 - 1 / n_cells)


class ExchangeLoad(Frozen):
    """What a job has to do for a join whose cells are behind an exchange.

    There a row costs most where it is received and stored, once in each cell that it is sent to, and a job is
    over when its busiest cell is. A cell with the part a of the left and b of the right takes a x + b y new
    rows in, and compares them with b W_y and a W_x, if rows are scanned (as in (3), for one cell of many).

    rows        that come in a job, of the left and of the right
    windows     stored rows of the left and of the right
    exchange    seconds to bring a row to a cell, and to find its partners where an index serves the join
    comparison  seconds for one; 0 where an index serves it
    """

    rows: tuple[float, float]
    windows: tuple[float, float]
    exchange: float = EXCHANGE
    comparison: float = 0.0

    def seconds(self, shares: Iterable[CellShare]) -> float:
        """Return how long the busiest cell takes, by what each has."""
        return self._busiest(shares, self.exchange)

    def work_seconds(self, shares: Iterable[CellShare]) -> float:
        """Return how long the stage of the busiest cell is at work: without what it costs to bring rows."""
        return self._busiest(shares, self.exchange - EXCHANGE)

    def _busiest(self, shares: Iterable[CellShare], per_row: float) -> float:
        (x, y), (stored_x, stored_y) = self.rows, self.windows
        scans = (x * stored_y + y * stored_x) * self.comparison
        return max((a * x + b * y) * per_row + compared * scans for a, b, compared in shares)


class JoinWork:
    """What a join has done since somebody looked.

    n_rows        that came, of the left and of the right
    n_searches    of new rows for partners
    n_compared    comparisons by scans
    busy_seconds  of all cells together
    n_pairs       that rows have met later than they came
    waited_us     for how long, by the watermark
    """

    def __init__(self) -> None:
        self.n_rows = [0, 0]
        self.n_pairs = self.waited_us = 0
        self.n_searches = self.n_compared = 0
        self.busy_seconds = 0.0

    def count(self, n_searches: int, n_compared: int, seconds: float) -> None:
        """Add searches."""
        self.n_searches += n_searches
        self.n_compared += n_compared
        self.busy_seconds += seconds

    def load(self, seconds: float, n_stored: tuple[int, int], *, is_indexed: bool) -> JoinLoad:
        """Return this as a load; `is_indexed` if rows are looked up now, whatever was scanned before."""
        rates = (self.n_rows[0] / seconds, self.n_rows[1] / seconds)
        search = self.busy_seconds / max(1, self.n_searches)
        if not is_indexed and self.n_compared:
            return JoinLoad(rates, n_stored, comparison=self.busy_seconds / self.n_compared, search=search)
        return JoinLoad(rates, n_stored, probe=search, search=search)


def list_layouts(max_cells: int) -> Iterator[Layout]:
    """Yield all layouts of up to so many cells: linear, square and rectangular."""
    for m in range(1, max_cells + 1):
        for n in range(1, max_cells // m + 1):
            yield m, n
