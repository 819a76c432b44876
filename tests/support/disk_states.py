"""What a death at any moment would leave on the disk: copies of a folder, taken while a run goes on in it.

A process that ends by os._exit or kill -9 leaves what its files had at that moment, and nothing that was
still in its own buffers; so does a copy. One run gives the states of all moments, where dying for each would
take a run for every one of them. Moments that left the same files are one state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock import crash_points

Signature = list[tuple[str, int, int, int]]


@dataclass
class DiskStates:
    """The states of a folder, in the order of time.

    copies   where they are kept
    moments  what was about to happen, or had just happened, in each
    points   the crash points that were passed
    """

    folder: Path
    copies: Path
    moments: list[str] = field(default_factory=list)
    points: set[str] = field(default_factory=set)
    _last: Signature | None = None

    def keep(self, moment: str) -> None:
        """Copy the folder, unless it is as it was the last time."""
        signature = _sign(self.folder)
        if signature != self._last:
            shutil.copytree(self.folder, self.copies / str(len(self.moments)))
            self.moments.append(moment)
            self._last = signature

    def restore_each(self) -> Iterator[str]:
        """Put every state back into the folder, one after the other; yield its moment."""
        for number, moment in enumerate(self.moments):
            shutil.rmtree(self.folder, ignore_errors=True)
            (self.copies / str(number)).rename(self.folder)
            yield moment


@contextmanager
def keep_states(folder: Path, copies: Path, *calls: str) -> Iterator[DiskStates]:
    """Keep the state of a folder at every crash point, around the calls of `os` named, and at the end."""
    states = DiskStates(folder, copies)

    def hear(point: str) -> None:
        states.points.add(point)
        states.keep(point)

    def patch(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            states.keep(f"before {name}{args}")
            done = call(*args, **kwargs)
            states.keep(f"after {name}{args}")
            return done

        return instead

    with pytest.MonkeyPatch.context() as patches:
        for name in calls:
            patches.setattr(os, name, patch(name, getattr(os, name)))
        patches.setattr(crash_points, "listener", hear)
        yield states
    states.keep("the end")


def _sign(folder: Path) -> Signature:
    """Return what changes whenever a file of the folder does."""
    signature = []
    for place, folders, files in os.walk(folder):
        signature += [(f"{place}/{name}", 0, 0, 0) for name in folders]
        for name in files:
            stat = Path(place, name).stat()
            signature.append((f"{place}/{name}", stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return sorted(signature)
