"""The papers' applications at tiny scale: settings under which each has something to find."""

from __future__ import annotations

from typing import Any

from penstock.apps import APPLICATIONS, Application

BUSY: dict[str, Any] = {"rows": 96, "cost_us": 0.0, "selectivity": 0.8, "size": 3, "batch": 40}
TINY: dict[str, dict[str, Any]] = {
    "fraud-detection": {"rows": 300, "keys": 6, "threshold": 0.9, "disorder_us": 3_000, "batch": 120},
    "spike-detection": {"rows": 300, "keys": 3, "window": 20, "threshold": 0.05, "batch": 120},
    "traffic-monitoring": {"rows": 120, "n_speeds": 5, "disorder_us": 2_000, "batch": 50},
    "word-count": {"rows": 40, "keys": 50, "rate": 4.0, "every_us": 2_000_000, "batch": 20},
    "yahoo": {"rows": 400, "rate": 20.0, "keys": 3, "disorder_us": 2_000_000, "batch": 150},
    "ysb-ratio": {"rows": 400, "rate": 20.0, "keys": 3, "disorder_us": 2_000_000, "batch": 150},
    "windowed-count": {"rows": 200, "rate": 10.0, "every_us": 2_500_000, "batch": 80},
    "linear-road": {
        "rows": 1_500,
        "rate": 5.0,
        "cars": 2,
        "accident": 0.3,
        "disorder_us": 20_000_000,
        "batch": 800,
    },
    "voip-stream": {"rows": 90, "keys": 9, "rate": 1.0, "disorder_us": 3_000_000, "batch": 80},
    "band-join": {
        "rows": 200,
        "keys": 60,
        "rate": 10.0,
        "within_us": 5_000_000,
        "disorder_us": 500_000,
        "batch": 60,
    },
    "busy-chain": BUSY,
    "busy-data-parallel": BUSY,
    "busy-tree": BUSY,
    "busy-reverse-tree": BUSY,
}
FORMS = [(name, form) for name, application in APPLICATIONS.items() for form in application.forms]


def tiny(name: str, **settings: Any) -> tuple[Application, Any]:
    """An application, and options for a few rows of it."""
    application = APPLICATIONS[name]
    return application, application.make_options(**{**TINY[name], **settings})
