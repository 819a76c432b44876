"""Write docs/applications.md: what every application does, how it is run, its options and its graph.

    python tools/application_pages.py

The page comes from `penstock.apps`; a test checks that it is current. Graphs of more than thirty steps are
not drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from penstock.apps import APPLICATIONS, Application, Options

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "applications.md"
MOST_STEPS = 30

HEAD = """# Applications

The applications of the papers, as programs that come with Penstock (`penstock.apps`). Each is one file that
can be read as an example: options, a seeded generator of rows in columns (any size, any disorder), the graph,
and a recount in plain Python of what must come out. The conformance suite runs all of them, in all their
forms, on every engine against their recounts; the block counts of the first seven are those of WindFlow's
[Table 3](table3.md).

```sh
penstock apps                                        # the list
penstock run word-count --rows 100000 --check        # run one, and compare with its recount
penstock run yahoo --rate 100000 --seconds 10        # as a live stream
penstock run spike-detection --engine spark --set threshold=0.03
penstock explain linear-road
```

**Forms.** "rows" has the operators of the paper, with plain Python functions where these keep a state.
"columns" computes by column expressions, windows and functions of batches what the other does row by row.
"benchmark" is what a benchmark suite made of the application.

**Real data.** `--file` reads a real file where an application can: the temperatures of NAB, a book, the taxi
traces of DSPBench, a file of the LinearRoad generator. Everything else is made up, because the data of the
papers are not to be had.

**In a program** an application is an object; a harness can iterate over all of them:

```python
import penstock as ps
from penstock.apps import APPLICATIONS

yahoo = APPLICATIONS["yahoo"]
options = yahoo.make_options(rows=5_000, rate=100.0, keys=10, disorder_us=2_000_000)
tables, answer = yahoo.generate(options), ps.write.memory()
yahoo.graph(options, tables=tables, writer=answer).run("local")
assert len(answer.rows()) == len(yahoo.recount(tables, options))
```

"""
MEASURED = {
    "WindFlow": "throughput by degrees, chaining and batch size; latency at 10,000 rows/s (5.2 to 5.4)",
    "WindFlow, AIR": "throughput and the highest sustainable rate (WindFlow, 5.2; AIR, 5.2)",
    "AIR": "the highest sustainable rate, by cores (5.2)",
    "DP-Join": "the highest sustainable rate and the latency by layout (4)",
    "C-Stream": "throughput and latency by threads and scheduler; elasticity (5)",
}
"""What the papers measure with the applications."""


def page() -> str:
    """Return the page as it should be."""
    lines = [
        "| application | paper | what it does | reads | forms | what the paper measures |",
        "|---|---|---|---|---|---|",
    ]
    for one in APPLICATIONS.values():
        cells = [f"[{one.name}](#{one.name})", f"{one.paper} ({one.label})", one.summary, one.reads]
        lines.append("| " + " | ".join([*cells, ", ".join(one.forms), MEASURED[one.paper]]) + " |")
    common = "\n## Options of all applications\n\n" + "\n".join(describe_options(Options)) + "\n"
    return HEAD + "\n".join(lines) + "\n" + common + "".join(map(describe, APPLICATIONS.values()))


def describe(application: Application) -> str:
    """Return the section of an application."""
    module = sys.modules[getattr(application.build, "func", application.build).__module__]
    assert module.__doc__ is not None, "every module says what it is"
    about = module.__doc__.split("\n", 1)[1].strip().replace("\n", " ")
    parts = [
        f"\n## {application.name}\n",
        f"{application.summary[0].upper()}{application.summary[1:]}. {about}\n",
    ]
    parts.append(f"Code: `{module.__name__.replace('.', '/')}.py`\n")
    own = list(describe_options(application.options, beside=Options))
    if own:
        parts.append("\n".join(own) + "\n")
    for form in application.forms:
        graph = application.graph(application.make_options(rows=96, form=form))
        if len(graph.plan().steps) <= MOST_STEPS:
            label = f"The form {form!r}:\n\n" if len(application.forms) > 1 else ""
            parts.append(f"{label}```mermaid\n{graph.explain(format='mermaid').rstrip()}\n```\n")
    return "\n".join(parts)


def describe_options(options: type[Options], beside: type[Options] | None = None) -> Iterator[str]:
    """Yield a list of options: those that another class does not have, with their defaults and texts."""
    known = {} if beside is None else {option.name: option.default for option in fields(beside)}
    texts = read_texts(options.__doc__ or "")
    for option in fields(options):
        if option.name not in known or known[option.name] != option.default:
            text = texts.get(option.name) or read_texts(Options.__doc__ or "").get(option.name, "")
            yield f"- `{option.name}` ({option.default!r}): {text}"


def read_texts(doc: str) -> dict[str, str]:
    """Return name -> text of the list in a docstring."""
    texts: dict[str, str] = {}
    name = ""
    for line in doc.splitlines()[2:]:
        words = line.strip().split("  ", 1)
        if len(words) == 2 and words[0].isidentifier():
            name = words[0]
            texts[name] = words[1].strip()
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return texts


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
