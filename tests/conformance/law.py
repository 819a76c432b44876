"""A law: what holds whatever the rows, tried on drawn examples.

On Spark every example is a run or two of about a second, so there it is tried on a few; that many graphs
agree is shown in tests/engines/spark/test_random_graphs.py, which runs the fragments of Spark's engine.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

FEW = 2
Test = Callable[..., None]


def law(max_examples: int, **drawn: st.SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Try the test on so many examples of what is drawn; it has an `engine` among its other parameters."""
    wanted = settings(
        deadline=None,
        derandomize=True,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )

    def wrap(test: Test) -> Test:
        refused: list[ps.NotSupported] = []

        @functools.wraps(test)
        def unless_refused(*args: Any, **options: Any) -> None:
            """An engine that refuses does so whatever the rows: no smaller example is looked for."""
            if not refused:
                try:
                    test(*args, **options)
                except ps.NotSupported as refusal:
                    refused.append(refusal)

        many = wanted(given(**drawn)(unless_refused))
        few = settings(wanted, max_examples=FEW)(given(**drawn)(unless_refused))

        def run_law(engine: str, **options: Any) -> None:
            refused.clear()
            tried = few if engine == "spark" else many
            tried(engine=engine, **options)
            if refused:
                raise refused[0]

        run_law.__signature__ = inspect.signature(many)  # type: ignore[attr-defined]  # how pytest is told
        run_law.__name__, run_law.__doc__, run_law.__module__ = test.__name__, test.__doc__, test.__module__
        return run_law

    return wrap
