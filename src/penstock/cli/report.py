"""The page that `penstock demo` writes: one HTML file with drawings inside, no script and nothing remote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0b62b0", "#c2410c", "#0f7b5f", "#8b3fa8", "#9a6b00", "#c0397b", "#1f8fa8", "#6b7480")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #d8dee4 }
td:first-child, th:first-child { text-align: left }
pre { background: #f6f8fa; padding: 1rem; overflow-x: auto }
svg { max-width: 100%; height: auto } figure { margin: 1rem 0 }
"""


def build_page(title: str, sections: Mapping[str, str]) -> str:
    """Return a page of sections: heading -> HTML."""
    body = "".join(f"<h2>{escape(heading)}</h2>\n{content}\n" for heading, content in sections.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}</body></html>\n"
    )


def build_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; numbers get thousands separators."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = ("".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def draw_bars(values: Mapping[str, float], unit: str) -> str:
    """Return horizontal bars from zero, one for each name, with their values."""
    most, left, width = max(values.values()) or 1.0, 230, 420
    parts = []
    for i, (name, value) in enumerate(values.items()):
        top, length, colour = 10 + 34 * i, width * value / most, COLOURS[i % len(COLOURS)]
        parts.append(
            f'<text x="{left - 10}" y="{top + 16}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{left}" y="{top}" width="{length:.1f}" height="22" fill="{colour}"/>'
            f'<text x="{left + length + 8:.1f}" y="{top + 16}">{value:,.0f} {escape(unit)}</text>'
        )
    return _svg(left + width + 190, 20 + 34 * len(values), parts)


def draw_lines(series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """Return lines from zero up, one for each name, with a legend."""
    points = [point for line in series.values() for point in line]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    most, width, height, left = max(y for _, y in points) or 1.0, 560, 220, 60
    parts = [
        f'<path d="M{left} 10V{height + 10}H{left + width}" fill="none" stroke="#8c959f"/>',
        f'<text x="{left - 8}" y="18" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{left - 8}" y="{height + 14}" text-anchor="end">0</text>',
        f'<text x="{left}" y="{height + 30}">{escape(across)}</text>',
        f'<text x="{left + 8}" y="18">{escape(up)}</text>',
    ]
    for i, (name, line) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [
            f"{left + width * (x - first) / max(last - first, 1e-9):.1f},{10 + height * (1 - y / most):.1f}"
            for x, y in line
        ]
        parts.append(
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(f'<text x="{left + width + 12}" y="{24 + 20 * i}" fill="{colour}">{escape(name)}</text>')
    return _svg(left + width + 150, height + 44, parts)


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<figure><svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14">{"".join(parts)}</svg></figure>'
    )


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}" if isinstance(cell, float) else str(cell)
