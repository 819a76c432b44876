"""Replaces the sizes by which stages choose between plain and compiled, rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.stages import policy


def set_sizes(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Put these sizes in force until the test ends."""
    monkeypatch.setattr(policy, "SIZES", replace(policy.SIZES, **sizes))
