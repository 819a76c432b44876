"""Every conformance test takes a `case`: a graph of its own on the engine at hand."""

from __future__ import annotations

import pytest

from tests.conformance.case import Case


@pytest.fixture
def case(engine: str, request: pytest.FixtureRequest) -> Case:
    """A new case on one of the engines."""
    return Case(engine, master=request.config.getoption("--master") if engine == "spark" else None)
