"""What the README, the docs and the examples show really runs."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from penstock.apps.campaign_views import ad_events, campaigns
from tests.docs.blocks import ROOT, blocks, pages

PAGES = [page for page in pages() if blocks(page)]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

ON_SPARK = (pytest.mark.slow, pytest.mark.xdist_group("spark-0"))
"""For the README's program, which runs on the default engine."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the data that the examples read."""
    for name, table in (("events", ad_events(400)), ("campaigns", campaigns())):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part-0.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=ON_SPARK if page.name == "README.md" else ())
        for page in PAGES
    ],
)
def test_the_blocks_of_a_page_run_one_after_the_other(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("page_under_test")  # dataclasses look their module up by name
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page):
        # Line numbers as in the page, so that a failure points into it.
        text = "\n" * (block.line - 1) + block.code
        code = compile(text, str(page.relative_to(ROOT)), "exec", dont_inherit=True)
        if block.runs:
            exec(code, module.__dict__)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_an_example_runs(example: Path, folder: Path) -> None:
    runpy.run_path(str(example), run_name="__main__")


def test_the_readme_program_is_about_twenty_lines() -> None:
    program = blocks(ROOT / "README.md")[0].code
    assert len([line for line in program.splitlines() if line.strip()]) <= 20
