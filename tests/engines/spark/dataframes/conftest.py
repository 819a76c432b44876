"""The Spark of the engine's tests, in sessions that look like a user's."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.spark.dataframes.plan import PROVIDER, ROCKSDB
from penstock.engines.spark.session.settings import FILE_MANAGER, sql_settings
from tests.engines.spark.conftest import opened, spark

__all__ = ["opened", "spark"]


@pytest.fixture(scope="session")
def users(spark: Any) -> Any:
    """A session with settings of its own, ours only for the state store and for quick checkpoints."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set(PROVIDER, ROCKSDB)
    quick = sql_settings({}, partitions=2, checkpoint=None)
    session.conf.set(FILE_MANAGER, quick[FILE_MANAGER])
    return session


@pytest.fixture(scope="session")
def in_new_york(users: Any) -> Any:
    """The same far from UTC, where clocks jump."""
    session = users.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session
