"""The papers' applications, a few rows each, against their recounts in plain Python."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import same_rows
from tests.support.applications import FORMS, tiny

FEATURE = "The papers' applications"


def check(name: str, engine: str, **settings: Any) -> list[dict[str, Any]]:
    """Run an application: what leaves must be what its recount says, and every account must add up."""
    application, options = tiny(name, **settings)
    tables, sink = application.generate(options), ps.write.memory()
    expected = application.recount(tables, options)
    assert expected, "an application that finds nothing shows nothing"
    result = application.graph(options, tables=tables, writer=sink).run(engine, clock=ps.ManualClock())
    assert all(account.is_balanced for account in result.accounts.values()), result.accounts
    assert not any(getattr(account, "late", 0) for account in result.accounts.values())
    columns = list(expected[0])
    same_rows(sink.table(), " ".join(columns), *(tuple(row[name] for name in columns) for row in expected))
    return expected


@pytest.mark.parametrize(("name", "form"), FORMS, ids=lambda value: value)
def test_an_application_gives_what_its_recount_says(engine: str, name: str, form: str) -> None:
    check(name, engine, form=form, **({"rows": 150} if form == "benchmark" else {}))


def test_the_yahoo_benchmark_with_words_and_uuids(engine: str) -> None:
    check("yahoo", engine, ids="text")


def test_windows_that_slide_over_all_events(engine: str) -> None:
    check("windowed-count", engine, window_us=5_000_000, every_us=1_000_000)


def test_a_band_that_includes_its_ends(engine: str) -> None:
    check("band-join", engine, strict=False, width=2)
