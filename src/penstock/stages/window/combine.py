"""From slices to windows: which windows are ready to close, and how each is combined from its slices.

Three methods with one answer: *direct* when a window is one slice, *sweep* with two stacks, or *tree*, the
B-PAT (SPRINGALD, IV-B). A sweep is linear in the slices it passes and pays when many windows close at once;
the tree costs a logarithm per window and pays when few do (`python -m bench windows`). The loops of all three
are in `kernels/windows/combine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
from penstock.kernels.windows import combine as loops
from penstock.kernels.windows.accumulate import RULES, Cells, build_rule_loop
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.slice_loop import BASE, CLEAN, FIRST, LATE_FROM, LATE_TO, MASK, MAX_ID
from penstock.stages.rows.batch import Ints
from penstock.stages.window.folds import CombineFailure, catch_combine
from penstock.stages.window.inputs import RunLoop
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow

CombineMethod = Literal["direct", "sweep", "tree"]


@dataclass(slots=True)
class ReadyWindows:
    """Windows of one kind, ring by ring: the starts, and the slices [lo, hi) that the ring has of each."""

    starts: Ints
    lo: Ints
    hi: Ints
    ends: Ints  # one past each ring's last window
    effort: Ints  # what combining them will take, as `kernels/windows/combine.py` counted it

    @property
    def counts(self) -> Ints:
        """Return the number of windows of each ring."""
        counts = self.ends.copy()
        counts[1:] -= self.ends[:-1]
        return counts

    def only(self, keep: npt.NDArray[np.bool_]) -> ReadyWindows:
        """Return the windows for which `keep` is true."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return ReadyWindows(self.starts[keep], self.lo[keep], self.hi[keep], before[self.ends], self.effort)

    def first(self, n: int) -> ReadyWindows:
        """Return the first `n` windows."""
        return ReadyWindows(self.starts[:n], self.lo[:n], self.hi[:n], np.minimum(self.ends, n), self.effort)


def list_ready(
    run: RunLoop, slicing: Slicing, window: TimeWindow, rings: Ints, after: int, upto: int, most: int
) -> list[ReadyWindows]:
    """List the windows over each ring with after < end <= upto, at most `most` per ring and list."""
    firsts, counts = np.empty(len(rings), np.int64), np.empty(len(rings), np.int64)
    bounds = (window.size, window.every, after, upto, slicing.period, np.array(slicing.offsets, np.int64))
    run(loops.count_ready, rings, *bounds, firsts, counts, work=len(rings))
    return list_next_windows(run, slicing, window, rings, firsts, counts, most)


def list_next_windows(
    run: RunLoop,
    slicing: Slicing,
    window: TimeWindow | CountWindow,
    rings: Ints,
    firsts: Ints,
    counts: Ints,
    most: int = MAX_ID,
) -> list[ReadyWindows]:
    """List counts[r] windows over each ring from the start firsts[r] on, at most `most` per ring and list."""
    kind = (window.size, window.every, slicing.period, np.array(slicing.offsets, np.int64))
    lists, n_left = [], int(counts.sum())
    while n_left:
        now = n_left if n_left <= most else int(np.minimum(counts, most).sum())
        starts, lo, hi = (np.empty(now, np.int64) for _ in range(3))
        ends, effort = np.empty(len(rings), np.int64), np.zeros(4, np.int64)
        listed = (starts, lo, hi, ends, effort)
        run(loops.list_ready, rings, *kind, firsts, counts, most, *listed, work=now)
        lists.append(ReadyWindows(*listed))
        n_left -= now
    return lists


def choose_method(longest: int, ready: ReadyWindows, is_light: bool = False) -> CombineMethod:
    """Choose the method that takes the least work for these windows; their results do not depend on it.

    `longest` is the greatest number of slices of a window. Rules of one number are `is_light` to sweep: a
    slice costs a fraction of a node of the tree.
    """
    if longest == 1:
        return "direct"
    swept, advance, lacking, late = ready.effort.tolist()
    n = len(ready.starts)
    # Why / 4: the tree is built once and kept, so what it lacks is spread over several closings.
    climbing = 2 * (advance + late) + lacking // 4 + n * longest.bit_length()
    sweeping = swept // 4 + n if is_light else 2 * swept + n
    return "tree" if climbing < sweeping else "sweep"


class Combiner:
    """Combines the slices of one arena into windows, accumulator by accumulator; the first counts rows."""

    def __init__(self, slicing: Slicing, arena: Arena, run: RunLoop, n_accumulators: int) -> None:
        self._arena, self._run, self._n_accumulators = arena, run, n_accumulators
        self.longest = slicing.longest
        self._is_light = all(rule.merge_numbers is not None for rule in arena.rules)
        self._levels = self.longest.bit_length() - 1

    def combine(
        self, rings: Ints, ready: ReadyWindows, method: CombineMethod | None = None
    ) -> tuple[ReadyWindows, list[Cells]]:
        """Return the windows that have rows, and their cells; `method` forces one way to combine."""
        method = method or choose_method(self.longest, ready, self._is_light)
        if method == "tree":
            self._refresh(rings, ready)
        counts, every = self._combine(0, method, rings, ready), ready
        filled = counts[:, 0] > 0
        if not filled.all():
            ready, counts = ready.only(filled), counts[filled]
        combined = [counts]
        for accumulator in range(1, self._n_accumulators):
            if self._arena.rules[accumulator] in RULES:
                combined.append(self._combine(accumulator, method, rings, ready))
            else:
                with self._finding_the_window(accumulator, rings, every):
                    combined.append(self._combine(accumulator, method, rings, ready))
        return ready, combined

    def _refresh(self, rings: Ints, ready: ReadyWindows) -> None:
        """Update all trees for these windows, and note so in the rings."""
        # One past the last slice that each ring's windows need; the ring's first if it has no window.
        past = np.where(ready.counts > 0, ready.hi[ready.ends - 1], rings[:, FIRST])
        trees = zip(self._arena.rules, self._arena.cells, self._arena.tree_nodes(), strict=True)
        for accumulator, (rule, cells, nodes) in enumerate(trees):
            with self._finding_the_window(accumulator, rings, ready):
                self._run(build_rule_loop(loops.update_trees, rule), cells, nodes, rings, past, self._levels)
        rings[:, CLEAN] = np.maximum(np.maximum(rings[:, CLEAN], rings[:, FIRST]), past)
        rings[:, LATE_FROM], rings[:, LATE_TO] = MAX_ID, -MAX_ID

    def _combine(self, accumulator: int, method: CombineMethod, rings: Ints, ready: ReadyWindows) -> Cells:
        """Return the combined cell of each window, for one accumulator; trees have been refreshed."""
        rule, cells = self._arena.rules[accumulator], self._arena.cells[accumulator]
        if method == "direct":
            ring = np.repeat(np.arange(len(rings)), ready.counts)
            return np.asarray(cells[rings[ring, BASE] + (ready.lo & rings[ring, MASK])])
        work = len(ready.starts)
        if self._arena.is_neutral[accumulator]:
            return rule.neutral_cells(work)
        out = np.empty((work, cells.shape[1]), cells.dtype)
        spans = (rings, ready.ends, ready.lo, ready.hi)
        if method == "tree":
            inputs = (cells, self._arena.tree_nodes()[accumulator], rule.neutral_cells(1))
            query = build_rule_loop(loops.query_windows, rule)
            self._run(query, *inputs, *spans, self._levels, out, work=work)
        elif rule.merge_numbers is not None:
            numbers, into = np.empty(self.longest, cells.dtype), out.reshape(-1)
            sweep = build_rule_loop(loops.sweep_numbers, rule)
            self._run(sweep, cells.reshape(-1), *spans, rule.neutral[0], numbers, into, work=work)
        else:
            scratch = rule.neutral_cells(self.longest + 1)
            sweep = build_rule_loop(loops.sweep_windows, rule)
            self._run(sweep, cells, rule.neutral_cells(1), *spans, scratch, out, work=work)
        return out

    @contextmanager
    def _finding_the_window(self, accumulator: int, rings: Ints, ready: ReadyWindows) -> Iterator[None]:
        """Add the place of the window on which a user's combine failed."""
        try:
            with catch_combine(self._arena.rules[accumulator]):
                yield
        except CombineFailure as failure:
            failure.place = self._first_failing(accumulator, rings, ready)
            raise

    def _first_failing(self, accumulator: int, rings: Ints, ready: ReadyWindows) -> int | None:
        """Find the first window that a sweep fails on, by halving; None if it fails on none."""

        def fails(n: int) -> bool:
            try:
                self._combine(accumulator, "sweep", rings, ready.first(n))
            except Exception:
                return True
            return False

        good, bad = 0, len(ready.starts)
        if not fails(bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if fails(middle) else (middle, bad)
        return good
