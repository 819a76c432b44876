"""The pictures in the docs are those of the programs they stand beside."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_picture_in_the_readme_is_that_of_its_program() -> None:
    drawn = runpy.run_path(str(ROOT / "tools" / "pictures.py"))["draw_campaign_views"]()
    stored = (ROOT / "docs" / "campaign-views.svg").read_text(encoding="utf-8")
    assert drawn == stored, "the program or the drawing has changed: run `python tools/pictures.py` and look"
