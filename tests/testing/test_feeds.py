"""Feeds and collecting sinks are what they say."""

from __future__ import annotations

import penstock as ps
from penstock.testing import collecting, feed


def test_a_feed_is_cut_as_given_and_a_collecting_sink_keeps_the_rows() -> None:
    graph = ps.PipeGraph("g")
    out = collecting()
    graph.source(feed([{"a": 1}, {"a": 2}], [], [{"a": 3}])).sink(out)
    assert graph.run(engine="reference").batches == 3
    assert out.rows() == [{"a": 1}, {"a": 2}, {"a": 3}]
