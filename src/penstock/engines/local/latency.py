"""End-to-end latency: a stamp per round where it is read, and a histogram per sink where it is committed.

Rows of a round share its stamp, and so do windows that a round lets go (WindFlow, 5.4: what an input makes
leave has its time). Counted per round: a stamp is two numbers in a ring, and a sink looks it up by the
round's number. Stamps have one writer, the source of the pace that is first in a round.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping

from penstock.engines.measured import Latency

RING = 1 << 12
"""Rounds whose stamps are known; what took longer than so many rounds of its pace is not counted."""
PARTS = 8
"""Buckets between two powers of two."""
N_BUCKETS = 64 * PARTS


class Histogram:
    """How often what took how long: buckets grow by an eighth of a power of two."""

    def __init__(self) -> None:
        self._counts = [0] * N_BUCKETS
        self._n = self._most = 0

    def add(self, us: int, n: int) -> None:
        """So many rows took so long."""
        self._counts[bucket_of(us)] += n
        self._n += n
        self._most = max(self._most, us)

    def latency(self) -> Latency:
        """What it says."""
        return Latency(self._n, self._at(0.50), self._at(0.95), self._at(0.99), self._most)

    def _at(self, share: float) -> int:
        """So many of all rows took at most so long."""
        left = share * self._n
        for bucket, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return min(highest_in(bucket), self._most)
        return self._most


def bucket_of(us: int) -> int:
    """The bucket of a length.

    >>> [bucket_of(us) for us in (0, 1, 7, 8, 15, 16, 17, 18, 31, 32)]
    [0, 1, 7, 8, 15, 16, 16, 17, 23, 24]
    """
    us = max(us, 0)
    power = us.bit_length() - PARTS.bit_length()
    return us if power < 0 else power * PARTS + (us >> power)


def highest_in(bucket: int) -> int:
    """The greatest length in a bucket.

    >>> [highest_in(bucket_of(us)) for us in (0, 7, 15, 16, 100, 1000)]
    [0, 7, 15, 17, 103, 1023]
    """
    power = max(bucket // PARTS - 1, 0)
    return ((bucket - power * PARTS + 1) << power) - 1


class Latencies:
    """The stamps of a run, and what its sinks make of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[int, tuple[array[int], array[int]]] = {}
        self._sinks: dict[str, Histogram] = {}

    def stamp(self, pace: int, number: int, now: int) -> None:
        """A round was read; of sources that go together the first counts."""
        if pace not in self._stamps:
            with self._lock:
                self._stamps.setdefault(pace, (array("q", [-1] * RING), array("q", [0] * RING)))
        numbers, stamps = self._stamps[pace]
        place = number % RING
        if numbers[place] != number:
            stamps[place] = now
            numbers[place] = number

    def committed(self, pace: int, number: int, rows: Mapping[str, int], now: int) -> dict[str, int]:
        """Sinks have committed so many rows of a round; gives how long it took them to get there."""
        numbers, stamps = self._stamps.get(pace, ((), ()))
        place = number % RING
        if not numbers or numbers[place] != number:
            return {}
        took = now - stamps[place]
        with self._lock:
            for sink, n in rows.items():
                if n:
                    self._sinks.setdefault(sink, Histogram()).add(took, n)
        return {sink: took for sink, n in rows.items() if n}

    def by_sink(self) -> dict[str, Latency]:
        """What was measured so far, of sinks that have got rows."""
        with self._lock:
            return {sink: histogram.latency() for sink, histogram in self._sinks.items()}
