"""A CUDA device for windows, and how much of what goes there at once."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from penstock.errors import GraphError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Cuda:
    """`device=ps.Cuda(...)`: windows on a CUDA device, with limits of your own (SPRINGALD, section VI).

    n_windows           windows of a key and kind that are computed at once: an upper bound, never a wait
    batch_rows          rows copied to the device at once
    max_keys_per_batch  keys that may share such a batch; None for any number
    max_pending         slices per key in device memory; the rest waits on the host

    >>> Cuda(max_keys_per_batch=25)
    Cuda(n_windows=64, batch_rows=262144, max_keys_per_batch=25, max_pending=65536)
    """

    n_windows: int = 64
    batch_rows: int = 1 << 18
    max_keys_per_batch: int | None = 1024
    max_pending: int = 1 << 16

    def __post_init__(self) -> None:
        for name, value in self.limits().items():
            if name == "max_keys_per_batch" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                usual = next(field.default for field in fields(self) if field.name == name)
                raise GraphError(
                    f"{name}={value!r} of a CUDA device is not a whole number of at least 1",
                    hint=f"leave it out, or say ps.Cuda({name}={usual})",
                )

    def __str__(self) -> str:
        own = [f"{each.name}={getattr(self, each.name)}" for each in fields(self) if self._is_own(each)]
        return f"cuda ({', '.join(own)})" if own else "cuda"

    def limits(self) -> dict[str, Any]:
        """The limits by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _is_own(self, limit: Field[int]) -> bool:
        return bool(getattr(self, limit.name) != limit.default)
