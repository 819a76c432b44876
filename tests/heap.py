"""The runner collects garbage before every run; here that must not walk over all other tests' leavings."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def small_heap() -> Iterator[None]:
    """Set what there is aside, so that a collection looks at this test's objects only."""
    gc.freeze()
    yield
    gc.unfreeze()
