"""What a window step's state depends on, in words: state is taken up again only by a step that says the same.

Degrees, sinks and stateless code are not in it, nor are patterns: these may change between runs. But their
state has one of three forms, which is in it. What is in one of the first two can be brought into the other
(`patterns/forms.py`). The words are kept as they are and not hashed, so that a refusal can name what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from penstock.caller import name_of
from penstock.operators.aggregates import Aggregate
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.timing.duration import spell

Fingerprint = Mapping[str, str]

BY_KEY, DEALT, IN_PARTS = "windows by key", "windows dealt to replicas", "windows by key, in parts"
"""The forms of saved windows: their slices and rows by the bucket of the key, or by the lane of the window
(`patterns/dealing.py`); or what is known of whole windows by the bucket of the key."""
FORM = "operator"
"""The topic of the form."""


def fingerprint(op: Windows, up: Stream, *, numbered: bool, form: str = BY_KEY) -> Fingerprint:
    """The step in words, by topic."""
    resolved = op.resolved(up)
    windows = [f"{label}: {window}" if label else str(window) for label, window in resolved.windows]
    aggregates = [f"{name}={_aggregate(each, up)}" for name, each in (op.aggregates or {}).items()]
    return {
        FORM: form,
        "key": ", ".join(up.key) or "none",
        "window": f"{', '.join(windows)}; lateness {spell(resolved.lateness)}",
        "aggregates": str(op.function) if op.function is not None else ", ".join(aggregates),
        "input schema": ", ".join(f"{field.name}: {field.type}" for field in up.schema),
        "time": str(up.time),
        "order": "numbered by the reader" if numbered else "by columns",
    }


def _aggregate(aggregate: Aggregate, up: Stream) -> str:
    """The aggregate with its options and the type it gives."""
    options = [
        f"{field.name}={name_of(value) if callable(value) else value!r}"
        for field in fields(aggregate)
        if field.name != "value" and (value := getattr(aggregate, field.name)) is not None
    ]
    told = f" ({', '.join(options)})" if options else ""
    return f"{aggregate}{told} as {aggregate.type(up)}"
