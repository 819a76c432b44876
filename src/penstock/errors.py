"""Errors, worded so that the user can fix the cause.

Every error that a user can cause is a `PenstockError`: the fact first, then where (the step and the
user's own file and line), then a detail and a hint, each only if it helps. The fields stay readable,
so that the command line need not take the text apart. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.frozen import Frozen


class Where(Frozen):
    """A place in the user's program: the line that wrote a step, or that defined a function."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class PenstockError(Exception):
    """Anything that Penstock refuses, or that stopped a run."""

    def __init__(
        self,
        fact: str,
        *,
        step: str | None = None,
        where: Where | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(fact)
        self.fact = fact
        self.step = step
        self.where = where
        self.detail = detail
        self.hint = hint

    def at(self, step: str | None, where: Where | None) -> PenstockError:
        """Fill in the place, unless an inner one is already known, and give the error back."""
        self.step = self.step or step
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        place = [f'step "{self.step}"'] if self.step else []
        place += [str(self.where)] if self.where else []
        parts = {"where:": ", ".join(place), "detail:": self.detail, "hint:": self.hint}
        return "\n".join([self.fact, *(f"  {label:<8}{text}" for label, text in parts.items() if text)])


class GraphError(PenstockError):
    """The graph is put together wrongly: names, sinks, branches, merges, routing."""


class SchemaError(PenstockError):
    """A column or a type is not what a step needs."""


class TimeError(PenstockError):
    """Event time, durations, windows or watermarks do not fit together."""


class FunctionError(PenstockError):
    """A user's function raised, or gave back something that is not a row of its schema."""


class ConnectorError(PenstockError):
    """A reader or a writer could not do its work."""


class CheckpointError(PenstockError):
    """Saved state is missing, damaged, foreign, or does not fit the graph."""


class EngineError(PenstockError):
    """An engine failed for a reason of its own."""


class NotSupported(PenstockError):
    """This engine, or this build, cannot do what was asked; the hint names what can."""


def nearest_first(wanted: str, available: Iterable[str]) -> list[str]:
    """Return the available names, most alike first: what an error about an unknown name should list.

    >>> nearest_first("pricee", ["ad_id", "price"])
    ['price', 'ad_id']
    """
    from difflib import SequenceMatcher  # for those who err

    def unlike(name: str) -> float:
        return -SequenceMatcher(None, wanted.lower(), name.lower()).ratio()

    return sorted(available, key=lambda name: (unlike(name), name))


# Failures of single rows.

_LONGEST_CAUSE = 1_000  # characters of an exception's text that an error repeats


class RowFailure(Exception):
    """The failure of one row: it has no value, and the rest of its batch goes on.

    An expression that overflows, divides by zero or cannot cast fails its row only; the step's `on_error`
    decides what becomes of that row. `reason` is written for the user.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def describe_cause(cause: BaseException) -> str:
    """Return why a row failed: a user's exception by its type and text, shortened where that is long."""
    if isinstance(cause, RowFailure):
        return cause.reason
    try:
        text = str(cause)
    except Exception as worse:  # a user's __str__ must not hide that there was a failure
        text = f"(its text cannot be shown: {type(worse).__name__})"
    if len(text) > _LONGEST_CAUSE:
        text = f"{text[:_LONGEST_CAUSE]}… ({len(text):,} characters)"
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
