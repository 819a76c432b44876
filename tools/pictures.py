"""Draw the pictures of the docs: `python tools/pictures.py` writes docs/campaign-views.svg again.

The picture is of the README's first program itself, run on a few made-up events, so that the two
cannot drift apart; a test compares them.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from penstock.apps.campaign_views import ad_events, campaigns

ROOT = Path(__file__).resolve().parent.parent


def draw_campaign_views() -> str:
    """The graph of the first program in README.md."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert found is not None, "the README shows a program"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, table in (("events", ad_events(20)), ("campaigns", campaigns())):
            Path(name).mkdir()
            pq.write_table(table, Path(name) / "part-0.parquet")
        # The picture is the same on every engine, and this one starts at once.
        program = found[1].replace("graph.run()", 'graph.run(engine="reference")')
        Path("program.py").write_text(program, "utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            drawn: str = runpy.run_path("program.py")["graph"].explain(format="svg")
    return drawn


def main() -> None:
    """Write every picture."""
    (ROOT / "docs" / "campaign-views.svg").write_text(draw_campaign_views(), "utf-8")


if __name__ == "__main__":
    main()
