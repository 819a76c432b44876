"""The looks of a result's page: one style sheet, light or dark as the reader likes, and for paper.

Eight looks of a line, `s0` to `s7`: the first four for what is ours, then reading, buckets, pandas, Polars.
Each has its own dashes beside its colour. On paper all is as in the light scheme, and no figure is torn.
"""

from __future__ import annotations

LIGHT = """--ink: #1d2733; --soft: #566270; --line: #dde2e9; --rule: #8a95a3; --back: #ffffff;
  --bar: #b9d3ee; --box: #2f6fb0; --good: #1b7a43; --bad: #b3261e;
  --c0: #0b62b0; --c1: #c2410c; --c2: #0f7b5f; --c3: #8b3fa8; --c4: #6b7480; --c5: #9a6b00; --c6: #c0397b;
  --c7: #1f8fa8;"""

DARK = """--ink: #e4e9ef; --soft: #a3afbd; --line: #2c3641; --rule: #6f7c8a; --back: #14191f;
  --bar: #2b4b6c; --box: #7fb4ea; --good: #6fd39b; --bad: #ff8f86;
  --c0: #6cb2f5; --c1: #ff9a62; --c2: #4fd0a5; --c3: #d08ff0; --c4: #aab4c0; --c5: #e0b23f; --c6: #ff86b8;
  --c7: #5ed0e6;"""

_COLOURS = "\n".join(f".s{at} {{ --c: var(--c{at}); }}" for at in range(8))
_DASHES = "\n".join(
    f".s{at} .series {{ stroke-dasharray: {dashes}; }}"
    for at, dashes in (
        (1, "9 3"),
        (2, "6 3"),
        (3, "3 3"),
        (4, "1 4"),
        (5, "10 3 2 3"),
        (6, "5 5"),
        (7, "2 2"),
    )
)

STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; margin-bottom: .2rem; }}
h2 {{ font-size: 1.15rem; margin: 2.5rem 0 .4rem; break-after: avoid; }}
p.about, figcaption {{ color: var(--soft); margin: 0 0 .6rem; }}
figcaption {{ font-size: .92rem; max-width: 50rem; }}
figure {{ margin: 0; break-inside: avoid; max-width: 58rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto;
  font-size: .86rem; }}
th, td {{ text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }}
th {{ color: var(--soft); font-weight: 500; }}
td small {{ color: var(--soft); white-space: nowrap; }} td {{ min-width: 3.4rem; }}
caption {{ text-align: left; color: var(--soft); padding-bottom: .2rem; }}
li.held::marker {{ color: var(--good); content: "✓ "; }}
li.broken::marker {{ color: var(--bad); content: "✗ "; }}
li.broken {{ color: var(--bad); }} p.tally {{ font-weight: 600; }}
svg {{ width: 100%; height: auto; font: 12px system-ui, sans-serif; display: block; }}
.grid {{ stroke: var(--line); }} .rule {{ stroke: var(--rule); }}
.bar {{ fill: var(--bar); }} .box {{ fill: var(--box); fill-opacity: .65; }}
.range {{ stroke: var(--box); }} .median {{ stroke: var(--ink); stroke-width: 2; }}
.name {{ fill: var(--ink); text-anchor: end; }} .value {{ fill: var(--ink); }} .axis {{ fill: var(--soft); }}
.tick {{ fill: var(--soft); text-anchor: middle; }}
.series {{ fill: none; stroke: var(--c); stroke-width: 2; }} .marker {{ fill: var(--c); }}
.whisker {{ stroke: var(--c); stroke-width: 1.5; }}
{_COLOURS}
{_DASHES}
.s6 .marker, .s7 .marker {{ fill: var(--back); stroke: var(--c); stroke-width: 1.6; }}
@media print {{ :root {{ color-scheme: light; {LIGHT} }}
  body {{ margin: 0; max-width: none; font-size: 11pt; }} table {{ display: table; font-size: 8pt; }}
  th, td {{ padding-right: .5rem; }} tr {{ break-inside: avoid; }} }}
"""
