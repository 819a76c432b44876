"""Which engines the suite runs on, and how a case says that an engine cannot do it.

A pytest plugin: tests/conftest.py loads it, so that `--engines` is known wherever pytest is started. A gap
is marked with its reason and is strict: on that engine the case must be refused with NotSupported or
EngineError, so a gap that is closed announces itself.
"""

from __future__ import annotations

import functools

import pytest

from penstock import EngineError, NotSupported
from penstock.engines.protocol import engine_names
from tests.support.spark_groups import spark_group

NAMES = ("reference", "local", "spark")
"""Every engine the suite knows, built or not."""

LOOPS = "an operator with its own driver loop waits for rows, and Spark brings them in batches"


def not_yet(*engines: str, reason: str) -> pytest.MarkDecorator:
    """Ours to do: the engine will have it one day."""
    return _gap("not yet", engines, reason)


def upstream(*engines: str, reason: str) -> pytest.MarkDecorator:
    """What the engine stands on lacks it."""
    return _gap("upstream", engines, reason)


def never(*engines: str, reason: str) -> pytest.MarkDecorator:
    """It does not belong into this engine."""
    return _gap("never", engines, reason)


everywhere = pytest.mark.everywhere
"""A case that also runs on a cluster (`--master`)."""


@functools.cache
def find_engines() -> tuple[str, ...]:
    """The engines that can be run here."""
    there = engine_names()
    return tuple(name for name in NAMES if name in there)


def choose_engines(asked: str | None) -> tuple[str, ...]:
    """The engines of `--engines=reference,local`; all that are built when nothing was asked."""
    if asked is None:
        return find_engines()
    names = tuple(name.strip() for name in asked.split(","))
    _check_names(names)
    missing = [name for name in names if name not in find_engines()]
    if missing:
        raise pytest.UsageError(
            f"--engines: not built yet: {', '.join(missing)} (built: {_join_names(find_engines())})"
        )
    return names


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--engines`: run the conformance suite on some engines only."""
    parser.addoption("--engines", metavar="NAMES", help=f"engines to run: {', '.join(NAMES)}, all by default")
    parser.addoption("--master", metavar="URL", help="the Spark master to run on; embedded by default")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "gap(kind, engines, reason): these engines cannot do this case")
    config.addinivalue_line("markers", "everywhere: on a cluster too")


def pytest_report_header(config: pytest.Config) -> str:
    """Say once which engines run and which do not exist yet."""
    absent = [name for name in NAMES if name not in find_engines()]
    names = _join_names(choose_engines(config.getoption("--engines")))
    return f"engines: {names}" + (f"; not yet: {_join_names(absent)}" if absent else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run whatever asks for an engine once per engine."""
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", choose_engines(metafunc.config.getoption("--engines")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn the gaps of the engine at hand into strict expectations of a refusal.

    Spark's cases are slow; two processes share them, and each starts one Java.
    """
    for item in items:
        engine = (
            item.callspec.params.get("engine")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if engine == "spark":
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group(spark_group(item)))
        for gap in item.iter_markers("gap"):
            kind, engines, reason = gap.args
            if engine in engines:
                item.add_marker(
                    pytest.mark.xfail(
                        strict=True, raises=(NotSupported, EngineError), reason=f"{kind}: {reason}"
                    )
                )


def _gap(kind: str, engines: tuple[str, ...], reason: str) -> pytest.MarkDecorator:
    _check_names(engines)
    if not engines or not reason.strip():
        raise pytest.UsageError(f"a gap names its engines and its reason: {kind} {engines} {reason!r}")
    return pytest.mark.gap(kind, engines, reason)


def _check_names(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise pytest.UsageError(
            f"there is no engine {', '.join(unknown)}; the engines are {_join_names(NAMES)}"
        )


def _join_names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) or "none"
