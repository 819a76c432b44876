"""One Spark for all the tests of a process: starting it is most of the cost."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.session.session import RunSession, open_session


@pytest.fixture(scope="session")
def opened() -> RunSession:
    return open_session(ps.SparkOptions())


@pytest.fixture(scope="session")
def spark(opened: RunSession) -> Any:
    return opened.spark
