"""Which slice a time is in, and which slices make a window: plain integer arithmetic.

A slice ends at every window start and at every window end. With size = q * every + r there is one slice
per slide when r is 0, else two: [k * every, k * every + r) and the rest of the slide. The paper's panes
of gcd(size, every) (III-B) are the same where r is 0 or every / 2, and never fewer otherwise.

    size 5, every 3:   0    2  3    5  6         window 0 is slices 0, 1, 2
                       |--0--|1|--2--|3|--4--    window 1 is slices 2, 3, 4
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slicing:
    """Windows [k * every, k * every + size) for every integer k, in any one unit of time."""

    size: int
    every: int

    @property
    def rest(self) -> int:
        """How far into a slide its first slice reaches; 0 when a slide is one slice."""
        return self.size % self.every

    @property
    def per_slide(self) -> int:
        """Slices per slide."""
        return 2 if self.rest else 1

    @property
    def per_window(self) -> int:
        """Slices per window: n in the paper."""
        return self.size // self.every * self.per_slide + (1 if self.rest else 0)

    @property
    def hopping(self) -> bool:
        """Whether there are gaps between windows; then every odd slice is a gap."""
        return self.every > self.size

    def slice_of(self, time: int) -> int:
        """The slice that holds a time.

        >>> [Slicing(size=5, every=3).slice_of(t) for t in (-1, 0, 1, 2, 3)]
        [-1, 0, 0, 1, 2]
        """
        slide = time // self.every
        second = bool(self.rest) and time - slide * self.every >= self.rest
        return slide * self.per_slide + int(second)

    def start_of(self, slice_id: int) -> int:
        """The first time of a slice."""
        slide, second = divmod(slice_id, self.per_slide)
        return slide * self.every + second * self.rest

    def first_window(self, slice_id: int) -> int:
        """The earliest window that holds a slice."""
        return -((self.per_window - 1 - slice_id) // self.per_slide)

    def last_window(self, slice_id: int) -> int:
        """The latest window that holds a slice (less than the first one in a hopping gap)."""
        return slice_id // self.per_slide

    def first_slice(self, window: int) -> int:
        """The slice a window starts with."""
        return window * self.per_slide

    def first_open(self, watermark: int) -> int:
        """The earliest window that a watermark leaves open: its end is after the watermark."""
        return (watermark - self.size) // self.every + 1

    def leaves(self, n_windows: int) -> int:
        """Slices under `n_windows` consecutive windows: m in the paper (IV-B2), in slices."""
        return self.per_window + (n_windows - 1) * self.per_slide
