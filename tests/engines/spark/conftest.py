"""One Spark for all the tests of a process: starting it is most of the cost."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.session.session import Opened, open_session


@pytest.fixture(scope="session")
def opened() -> Opened:
    return open_session(ps.SparkOptions())


@pytest.fixture(scope="session")
def spark(opened: Opened) -> Any:
    return opened.spark
