"""Name the place: every error that leaves a verb says which step and which line of the user's it is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError, Where


@contextmanager
def placed(step: str | None, where: Where | None) -> Iterator[None]:
    """Fill in step and line of an error on its way out, unless it already knows better."""
    try:
        yield
    except PenstockError as error:
        error.at(step, where)
        raise
