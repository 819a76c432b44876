"""Accounts round by round: taken where rows are counted, and added up."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from penstock.plan.accounts import Accounts


def taken(accounts: Accounts) -> Accounts:
    """What was counted since the last call; counting begins anew, in the same object."""
    found, fresh = Accounts(**asdict(accounts)), Accounts()
    for each in fields(Accounts):
        setattr(accounts, each.name, getattr(fresh, each.name))
    return found


def add(total: Accounts, more: Accounts) -> None:
    """Add what was counted in a round."""
    for name, value in asdict(more).items():
        if name == "late_by_window":
            merged: dict[str, Any] = dict(total.late_by_window)
            for window, missed in value.items():
                merged[window] = merged.get(window, 0) + missed
            total.late_by_window = merged
        else:
            setattr(total, name, getattr(total, name) + value)
