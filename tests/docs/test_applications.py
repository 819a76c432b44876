"""The page of the applications is what the applications say of themselves."""

from __future__ import annotations

import runpy

from tests.docs.blocks import ROOT


def test_the_page_of_the_applications_is_current() -> None:
    page: str = runpy.run_path(str(ROOT / "tools" / "application_pages.py"))["page"]()
    file = ROOT / "docs" / "applications.md"
    assert file.read_text(encoding="utf-8") == page, "run: python tools/application_pages.py"
