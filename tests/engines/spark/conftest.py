"""One Spark for all the tests of a process: starting it is most of the cost."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.session.session import RunSession, open_session
from penstock.engines.spark.session.settings import FILE_MANAGER, sql_settings


@pytest.fixture(scope="session")
def spark_session() -> RunSession:
    return open_session(ps.SparkOptions())


@pytest.fixture(scope="session")
def spark(spark_session: RunSession) -> Any:
    return spark_session.spark


@pytest.fixture(scope="session")
def users(spark: Any) -> Any:
    """A session that looks like a user's, ours only for the state store and for quick checkpoints."""
    from penstock.engines.spark.dataframes.window_plan import PROVIDER, ROCKSDB

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
