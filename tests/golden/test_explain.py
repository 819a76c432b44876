"""What explain() says of a few graphs, word for word."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import penstock as ps
from tests.conftest import Golden
from tests.support import plan_graphs as graphs

GRAPHS = [graphs.campaign_views, graphs.split_and_merge, graphs.join, graphs.feedback]


def place_masked(text: str) -> str:
    """Lines of the test's own file move, and its folder depends on where the tests run."""
    return re.sub(r"\S*graphs\.py:\d+", "graphs.py:LINE", text)


@pytest.mark.parametrize("make", GRAPHS)
def test_explain_says_what_its_golden_file_says(make: Callable[[], ps.PipeGraph], golden: Golden) -> None:
    golden(f"explain/{make.__name__}.txt", place_masked(make().explain()))


@pytest.mark.parametrize("make", GRAPHS)
def test_mermaid_is_what_its_golden_file_is(make: Callable[[], ps.PipeGraph], golden: Golden) -> None:
    golden(f"mermaid/{make.__name__}.mmd", make().explain(format="mermaid"))
