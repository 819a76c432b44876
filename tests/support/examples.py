"""How many random examples a slow property test tries: few for every change, all in `make nightly`."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int, *, nightly: int) -> int:
    """Return the number of examples: `nightly` with the profile `search`, which draws new ones."""
    return usual if settings.default is None or settings.default.derandomize else nightly
