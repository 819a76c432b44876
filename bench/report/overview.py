"""One page with the plots of all kept results: speed-ups at a glance, then by what is varied or measured.

Like the page of one result it holds everything that it shows and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.draw import draw_speed_ups
from bench.page import show_chart, show_table, wrap_page
from bench.result import Result, Verdict
from bench.text import format_tally, format_verdict
from bench.workload import Chart

ABOUT = (
    "What was measured, from the results that are kept in bench/results; docs/results.md has every figure."
)

TOPICS: tuple[tuple[str, Callable[[Chart], bool]], ...] = (
    ("Latency", lambda chart: chart.form == "boxes" or "latency" in f"{chart.title} {chart.up}".lower()),
    ("Sustainable throughput", lambda chart: "sustain" in f"{chart.title} {chart.up}".lower()),
    ("Windows per row", lambda chart: chart.along.startswith(("slide", "windows"))),
    ("Keys", lambda chart: chart.along == "keys"),
    ("Disorder", lambda chart: "delay" in chart.along or "disorder" in chart.along),
    ("Cores", lambda chart: any(word in chart.along for word in ("threads", "cores", "workers", "replicas"))),
    ("Throughput", lambda chart: chart.up.endswith("/s")),
    ("More", lambda chart: True),
)
"""What charts are about, in the order in which a chart is tried; the page has throughput first."""
FIRST = ("Throughput", "Sustainable throughput", "Latency")


def build_overview(summaries: Mapping[str, Result]) -> str:
    """Return the whole page as HTML text."""
    charts: dict[str, list[str]] = {}
    for result in summaries.values():
        for chart in result.charts:
            charts.setdefault(topic_of(chart), []).append(_show(chart, result))
    names = [name for name, _ in TOPICS]
    order = [*FIRST, *(name for name in names if name not in FIRST)]
    parts = [_speed_ups(summaries), *(_topic(name, charts[name]) for name in order if name in charts)]
    return wrap_page("Penstock, measured", ABOUT, "\n".join([*parts, _claims(summaries)]))


def topic_of(chart: Chart) -> str:
    """Return what a chart is about."""
    return next(name for name, fits in TOPICS if fits(chart))


def _show(chart: Chart, result: Result) -> str:
    figures = {one.cell: one for one in result.figures}
    details = f"<details><summary>figures</summary>\n{show_table(chart, figures)}\n</details>"
    return f"{show_chart(chart, figures)}\n<p><code>{escape(result.command)}</code></p>\n{details}"


def _topic(name: str, charts: Sequence[str]) -> str:
    return f"<section>\n<h1>{escape(name)}</h1>\n" + "\n".join(charts) + "\n</section>"


def _speed_ups(summaries: Mapping[str, Result]) -> str:
    parts = []
    for name, result in summaries.items():
        bars = [verdict for verdict in result.verdicts if _is_speed_up(verdict)]
        if bars:
            parts.append(f"<figure>\n<h2>{escape(name)}</h2>\n{draw_speed_ups(name, bars)}\n</figure>")
    if not parts:
        return ""
    caption = "Times as fast as what is named; the mark is what was claimed, a red bar is a claim not held."
    return f"<section>\n<h1>Speed-up</h1>\n<p>{caption}</p>\n" + "\n".join(parts) + "\n</section>"


def _is_speed_up(verdict: Verdict) -> bool:
    return bool(verdict.claim.speed and verdict.claim.over and verdict.measured)


def _claims(summaries: Mapping[str, Result]) -> str:
    parts = ["<h1>Claims</h1>"]
    for name, result in summaries.items():
        items = "\n".join(
            f'<li class="{"held" if one.held else "broken"}">{escape(format_verdict(one))}</li>'
            for one in result.verdicts
        )
        parts.append(f"<h2>{escape(name)}: {escape(format_tally(result))}</h2>\n<ul>\n{items}\n</ul>")
    return "\n".join(parts)
