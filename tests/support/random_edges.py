"""Directed graphs as bare numbers, for the layout's properties: some edges run backwards."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.plan.layout import Edge


@st.composite
def random_edges(draw: st.DrawFn, *, most: int = 25) -> tuple[int, list[Edge]]:
    """A number of nodes and edges among them, double ones and loops included."""
    n = draw(st.integers(1, most))
    place = st.integers(0, n - 1)
    edge = st.builds(Edge, place, place, aside=st.booleans(), label_width=st.sampled_from([0.0, 90.0, 200.0]))
    return n, draw(st.lists(edge, max_size=2 * n))
