"""How windows are put together from their slices, and why that way.

A window of one slice needs nothing. Exact sums are kept as running sums, and what lies before a window is
taken away; everything else goes over two stacks (*sweep*). Where few windows leave at once the B-PAT of
SPRINGALD (IV-B) does less than either: a stage chooses at every watermark, and the answer is the same.
"""

from __future__ import annotations


def way_of(longest: int, *, exact: bool) -> str:
    """The way for windows of up to `longest` slices; `exact` says that what was added can be taken away."""
    if longest == 1:
        return "direct: a window is one slice, and needs no tree"
    many = "subtract: running sums are exact"
    if not exact:
        many = "sweep: two stacks, because what was added cannot be taken away exactly"
    return f"{many}; B-PAT when few windows leave at once, for a logarithm of {longest} slices each"
