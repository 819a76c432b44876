"""What all tests share: fixed examples, a quick Java, and golden files (`make golden` writes them again)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.spark_groups import spark_group

# The same examples every time, so that a red run means a change and not a lucky draw. To search for new
# ones: pytest --hypothesis-profile=search
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("fixed")

# A shell lets jobs in the background ignore SIGINT, and so would all that tests start from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start Java often and use it for seconds, so code is compiled once and quickly, not again and better.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    f'--conf "spark.driver.defaultJavaOptions={QUICK_JAVA}"'
    f' --conf "spark.executor.defaultJavaOptions={QUICK_JAVA}" pyspark-shell',
)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", QUICK_JAVA)

pytest_plugins = ("tests.conformance.engines",)

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]
"""golden("explain/join.txt", text): the text is what the file under tests/golden/ says."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share out what runs on the Spark of its own process between two processes: one Java each."""
    for item in items:
        if "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(spark_group(item)))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        check_golden(GOLDEN / name, text, update=update)

    return check


def check_golden(file: Path, text: str, *, update: bool) -> None:
    """Compare a text with a golden file, or write the file."""
    text = text if text.endswith("\n") else text + "\n"
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if not file.exists():
        pytest.fail(f"there is no golden file {file.name} yet: run `make golden` and read what it wrote")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} has changed; if meant, run `make golden`"
