"""The window stage: which windows are ready, and putting each together from its slices.

Four ways to combine, with one answer: *direct* when a window is one slice, *subtract* running sums that are
exact, *sweep* with two stacks, or *tree*, the B-PAT. A sweep is linear in the slices it passes and pays when
many windows leave at once; the tree costs a logarithm per window and pays when few do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.kernels import stacks
from penstock.kernels.arena import Arena
from penstock.kernels.by_rule import QUERIES, SWEEPS, UPDATES
from penstock.kernels.cells import BASE, CLEAN, END, FIRST, GREAT, LATE_FROM, LATE_TO, MASK
from penstock.kernels.rings import spread
from penstock.kernels.rules import Rule
from penstock.stages.filling import Run
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]
Way = Literal["direct", "subtract", "sweep", "tree"]


@dataclass(slots=True)
class Listing:
    """Windows of one kind, ring by ring: the starts, and the slices [lo, hi) that the ring has of each."""

    starts: Ints
    lo: Ints
    hi: Ints
    ends: Ints  # one past each ring's last window

    def only(self, keep: npt.NDArray[np.bool_]) -> Listing:
        """The windows that `keep` says."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return Listing(self.starts[keep], self.lo[keep], self.hi[keep], before[self.ends])


def list_ready(
    slicing: Slicing, window: TimeWindow, rings: Ints, after: int, upto: int, most: int | None
) -> list[Listing]:
    """The windows with after < end <= upto that lie over each ring, at most `most` per ring and listing.

    Windows that touch no ring are never listed, however long a stretch without rows is.
    """
    held_from = slicing.starts(rings[:, FIRST])
    held_to = slicing.starts(rings[:, END])
    every, size = window.every, window.size
    first = (np.maximum(held_from, after) - size) // every * every + every
    last = np.minimum((held_to - 1) // every * every, (upto - size) // every * every)
    counts = np.maximum((last - first) // every + 1, 0)
    found = []
    while counts.any():
        now = counts if most is None else np.minimum(counts, most)
        found.append(_listing(slicing, window, rings, first, now))
        first, counts = first + now * every, counts - now
    return found


def _listing(slicing: Slicing, window: TimeWindow, rings: Ints, first: Ints, counts: Ints) -> Listing:
    numbers, ring = spread(np.zeros_like(counts), counts)
    starts = first[ring] + numbers * window.every
    lo, hi = _spans(slicing, window, starts)
    lo, hi = np.maximum(lo, rings[ring, FIRST]), np.minimum(hi, rings[ring, END])
    return Listing(starts, lo, hi, np.cumsum(counts))


def _spans(slicing: Slicing, window: TimeWindow, starts: Ints) -> tuple[Ints, Ints]:
    """The slices of windows; a difference that is the same for all windows is added, not computed."""
    lo = slicing.ids(starts)
    if len(slicing.offsets) == 1:
        return lo, lo + window.size // slicing.period
    return lo, slicing.ids(starts + window.size)


def choose(longest: int, rings: Ints, listing: Listing) -> Way:
    """The way that takes the least work for these windows; what they give does not depend on it.

    `longest` is the most slices of a window. Where sums are not exact, "subtract" means to sweep.
    """
    if longest == 1:
        return "direct"
    past, first = _past(rings, listing), _from(rings, listing)
    n = len(listing.starts)
    # The tree is built once and kept: what it lacks by now is spread over a few times of leaving.
    lacking = np.maximum(past - np.maximum(rings[:, CLEAN], rings[:, FIRST]), 0).sum() // 4
    late = np.maximum(rings[:, LATE_TO] - rings[:, LATE_FROM], 0).sum()
    advance = np.maximum(past - _first_past(rings, listing) + 1, 0).sum()
    climbing = 2 * (advance + late) + lacking + n * longest.bit_length()
    sweeping = 2 * np.maximum(past - first, 0).sum() + n
    return "tree" if climbing < sweeping else "subtract"


def explain(slicing: Slicing, rule: Rule) -> str:
    """Which ways a register may be combined, and why: a line of the plan's text."""
    if slicing.longest == 1:
        return "direct: a window is one slice"
    many = "subtract: running sums are exact" if rule.exact else "sweep: two stacks, the rule has no inverse"
    return f"{many}; B-PAT when few windows leave at once, for a logarithm of {slicing.longest} slices each"


class Combiner:
    """Combines the slices of one arena into windows, register by register."""

    def __init__(self, slicing: Slicing, arena: Arena, run: Run) -> None:
        self._arena, self._run = arena, run
        self.longest = slicing.longest
        self._levels = self.longest.bit_length() - 1

    def refresh(self, rings: Ints, listing: Listing) -> None:
        """Make all trees right for the listed windows, and note so in the rings."""
        past = _past(rings, listing)
        for rule, cells, nodes in zip(
            self._arena.rules, self._arena.cells, self._arena.tree_nodes(), strict=True
        ):
            self._run(UPDATES[rule.name], cells, nodes, rings, past, self._levels)
        rings[:, CLEAN] = np.maximum(np.maximum(rings[:, CLEAN], rings[:, FIRST]), past)
        rings[:, LATE_FROM], rings[:, LATE_TO] = GREAT, -GREAT

    def combine(self, register: int, way: Way, rings: Ints, listing: Listing) -> Cells:
        """The combined cell of each listed window, for one register; trees have been refreshed."""
        rule, cells = self._arena.rules[register], self._arena.cells[register]
        if way == "direct":
            ring = np.repeat(np.arange(len(rings)), np.diff(listing.ends, prepend=0))
            return np.asarray(cells[rings[ring, BASE] + (listing.lo & rings[ring, MASK])])
        out = np.empty((len(listing.starts), rule.width), rule.dtype)
        spans = (rings, listing.ends, listing.lo, listing.hi)
        if way == "tree":
            nodes = self._arena.tree_nodes()[register]
            self._run(QUERIES[rule.name], cells, nodes, rule.blank(1), *spans, self._levels, out)
        elif rule.exact and way != "sweep":
            self._run(stacks.subtract, cells, *spans, self._scratch(rule, rings, listing), out)
        else:
            scratch = rule.blank(self.longest + 1)
            self._run(SWEEPS[rule.name], cells, rule.blank(1), *spans, scratch, out)
        return out

    def _scratch(self, rule: Rule, rings: Ints, listing: Listing) -> Cells:
        longest = np.maximum(_past(rings, listing) - _from(rings, listing), 0).max(initial=0)
        return np.empty((int(longest) + 1, rule.width), rule.dtype)


def _past(rings: Ints, listing: Listing) -> Ints:
    """One past the last slice that each ring's windows need; its own first where it has no window."""
    has = np.diff(listing.ends, prepend=0) > 0
    return np.where(has, listing.hi[listing.ends - 1] if len(listing.hi) else 0, rings[:, FIRST])


def _from(rings: Ints, listing: Listing) -> Ints:
    """The first slice that each ring's windows need; its own first where it has no window."""
    return _of_first(rings, listing, listing.lo)


def _first_past(rings: Ints, listing: Listing) -> Ints:
    """One past the last slice of each ring's first window; its own first where it has no window."""
    return _of_first(rings, listing, listing.hi)


def _of_first(rings: Ints, listing: Listing, slices: Ints) -> Ints:
    heads = np.concatenate([[0], listing.ends[:-1]])
    safe = np.minimum(heads, max(len(slices) - 1, 0))
    return np.where(listing.ends > heads, slices[safe] if len(slices) else 0, rings[:, FIRST])
