"""The window stage: which windows are ready, and putting each together from its slices.

Four ways to combine, with one answer: *direct* when a window is one slice, *subtract* running sums that are
exact, *sweep* with two stacks, or *tree*, the B-PAT. A sweep is linear in the slices it passes and pays when
many windows leave at once; the tree costs a logarithm per window and pays when few do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
from penstock.kernels.windows import ready
from penstock.kernels.windows import tree as stacks
from penstock.kernels.windows.accumulate import RULES, Rule
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.slice_loop import BASE, CLEAN, FIRST, LATE_FROM, LATE_TO, MASK, MAX_ID
from penstock.kernels.windows.tree import NUMBER_SWEEPS, QUERIES, SWEEPS, UPDATES
from penstock.stages.window.folds import CombineFailure, catch_combine
from penstock.stages.window.inputs import Run
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]
CombineMethod = Literal["direct", "subtract", "sweep", "tree"]


@dataclass(slots=True)
class ReadyWindows:
    """Windows of one kind, ring by ring: the starts, and the slices [lo, hi) that the ring has of each."""

    starts: Ints
    lo: Ints
    hi: Ints
    ends: Ints  # one past each ring's last window
    effort: Ints | None = (
        None  # what putting them together will take (`kernels/windows/ready.py`), if it was counted
    )

    @property
    def counts(self) -> Ints:
        """How many windows each ring has here."""
        counts = self.ends.copy()
        counts[1:] -= self.ends[:-1]
        return counts

    def only(self, keep: npt.NDArray[np.bool_]) -> ReadyWindows:
        """The windows that `keep` says."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return ReadyWindows(self.starts[keep], self.lo[keep], self.hi[keep], before[self.ends], self.effort)

    def first(self, n: int) -> ReadyWindows:
        """The first `n` windows."""
        return ReadyWindows(self.starts[:n], self.lo[:n], self.hi[:n], np.minimum(self.ends, n))


def list_ready(
    run: Run, slicing: Slicing, window: TimeWindow, rings: Ints, after: int, upto: int, most: int
) -> list[ReadyWindows]:
    """The windows with after < end <= upto that lie over each ring, at most `most` per ring and listing."""
    firsts, counts = np.empty(len(rings), np.int64), np.empty(len(rings), np.int64)
    period, offsets = slicing.period, np.array(slicing.offsets, np.int64)
    kind = (window.size, window.every)
    left = run(ready.count_ready, rings, *kind, after, upto, period, offsets, firsts, counts, work=len(rings))
    found = []
    while left:
        now = left if left <= most else int(np.minimum(counts, most).sum())
        starts, lo, hi = (np.empty(now, np.int64) for _ in range(3))
        ends, effort = np.empty(len(rings), np.int64), np.zeros(5, np.int64)
        listed = (starts, lo, hi, ends, effort)
        run(ready.list_ready, rings, *kind, period, offsets, firsts, counts, most, *listed, work=now)
        found.append(ReadyWindows(*listed))
        left -= now
    return found


def choose_method(longest: int, rings: Ints, listing: ReadyWindows, lightly: bool = False) -> CombineMethod:
    """The way that takes the least work for these windows; what they give does not depend on it.

    `longest` is the most slices of a window. Where sums are not exact, "subtract" means to sweep. Rules of
    one number are swept `lightly`: a slice then costs a fraction of what a node of a tree does.
    """
    if longest == 1:
        return "direct"
    swept, advance, lacking, late, _ = _effort(rings, listing).tolist()
    n = len(listing.starts)
    # The tree is built once and kept: what it lacks by now is spread over a few times of leaving.
    climbing = 2 * (advance + late) + lacking // 4 + n * longest.bit_length()
    sweeping = swept // 4 + n if lightly else 2 * swept + n
    return "tree" if climbing < sweeping else "subtract"


def _effort(rings: Ints, listing: ReadyWindows) -> Ints:
    """What `kernels.ready.list_ready` has counted, or the same of windows listed elsewhere."""
    if listing.effort is not None:
        return listing.effort
    past = _past(rings, listing)
    swept = np.maximum(past - _of_first(rings, listing, listing.lo), 0)
    advance = np.maximum(past - _of_first(rings, listing, listing.hi) + 1, 0)
    lacking = np.maximum(past - np.maximum(rings[:, CLEAN], rings[:, FIRST]), 0)
    late = np.maximum(rings[:, LATE_TO] - rings[:, LATE_FROM], 0)
    return np.array([*(each.sum() for each in (swept, advance, lacking, late)), swept.max(initial=0)])


class Combiner:
    """Combines the slices of one arena into windows, register by register."""

    def __init__(self, slicing: Slicing, arena: Arena, run: Run) -> None:
        self._arena, self._run = arena, run
        self.longest = slicing.longest
        self.lightly = all(rule.merge_numbers is not None or rule.exact for rule in arena.rules)
        self._levels = self.longest.bit_length() - 1

    def refresh(self, rings: Ints, listing: ReadyWindows) -> None:
        """Make all trees right for the listed windows, and note so in the rings."""
        past = _past(rings, listing)
        trees = zip(self._arena.rules, self._arena.cells, self._arena.tree_nodes(), strict=True)
        for register, (rule, cells, nodes) in enumerate(trees):
            with self._blaming(register, rings, listing):
                self._run(UPDATES[rule.name], cells, nodes, rings, past, self._levels)
        rings[:, CLEAN] = np.maximum(np.maximum(rings[:, CLEAN], rings[:, FIRST]), past)
        rings[:, LATE_FROM], rings[:, LATE_TO] = MAX_ID, -MAX_ID

    def combine(self, register: int, way: CombineMethod, rings: Ints, listing: ReadyWindows) -> Cells:
        """The combined cell of each listed window, for one register; trees have been refreshed."""
        if way == "direct":
            cells = self._arena.cells[register]
            ring = np.repeat(np.arange(len(rings)), listing.counts)
            return np.asarray(cells[rings[ring, BASE] + (listing.lo & rings[ring, MASK])])
        if self._arena.rules[register] in RULES:
            return self._combine(register, way, rings, listing)
        with self._blaming(register, rings, listing):
            return self._combine(register, way, rings, listing)

    def _combine(self, register: int, way: CombineMethod, rings: Ints, listing: ReadyWindows) -> Cells:
        rule, cells = self._arena.rules[register], self._arena.cells[register]
        work = len(listing.starts)
        if self._arena.is_neutral[register]:
            return rule.neutral_cells(work)
        out = np.empty((work, rule.width), rule.dtype)
        spans = (rings, listing.ends, listing.lo, listing.hi)
        if way == "tree":
            nodes = self._arena.tree_nodes()[register]
            self._run(
                QUERIES[rule.name], cells, nodes, rule.neutral_cells(1), *spans, self._levels, out, work=work
            )
        elif rule.exact and way != "sweep":
            self._run(
                stacks.subtract_prefixes, cells, *spans, self._scratch(rule, rings, listing), out, work=work
            )
        elif rule.merge_numbers is not None:
            line, into = np.empty(self.longest, rule.dtype), out.reshape(-1)
            sweep = NUMBER_SWEEPS[rule.name]
            self._run(sweep, cells.reshape(-1), *spans, rule.neutral[0], line, into, work=work)
        else:
            scratch = rule.neutral_cells(self.longest + 1)
            self._run(SWEEPS[rule.name], cells, rule.neutral_cells(1), *spans, scratch, out, work=work)
        return out

    @contextmanager
    def _blaming(self, register: int, rings: Ints, listing: ReadyWindows) -> Iterator[None]:
        """Find the window on which a user's combine failed."""
        try:
            with catch_combine(self._arena.rules[register]):
                yield
        except CombineFailure as failed:
            failed.place = self._first_failing(register, rings, listing)
            raise

    def _first_failing(self, register: int, rings: Ints, listing: ReadyWindows) -> int | None:
        """The first window that a sweep fails on, found by halving; None if it fails on none."""

        def fails(n: int) -> bool:
            try:
                self._combine(register, "sweep", rings, listing.first(n))
            except Exception:
                return True
            return False

        good, bad = 0, len(listing.starts)
        if not fails(bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if fails(middle) else (middle, bad)
        return good

    def _scratch(self, rule: Rule, rings: Ints, listing: ReadyWindows) -> Cells:
        longest = int(_effort(rings, listing)[ready.WIDEST])
        return np.empty((longest + 1, rule.width), rule.dtype)


def _past(rings: Ints, listing: ReadyWindows) -> Ints:
    """One past the last slice that each ring's windows need; its own first where it has no window."""
    has = listing.counts > 0
    return np.where(has, listing.hi[listing.ends - 1] if len(listing.hi) else 0, rings[:, FIRST])


def _of_first(rings: Ints, listing: ReadyWindows, slices: Ints) -> Ints:
    """What `slices` says of each ring's first window; the ring's own first slice where it has no window."""
    heads = np.concatenate([[0], listing.ends[:-1]])
    safe = np.minimum(heads, max(len(slices) - 1, 0))
    return np.where(listing.ends > heads, slices[safe] if len(slices) else 0, rings[:, FIRST])
