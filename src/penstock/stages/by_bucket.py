"""State by key, bucket by bucket: saved, taken up again, and handed from replica to replica while rows flow.

What changes hands stays in the process, so it is never turned into bytes, and may hold what could not be
saved. Whoever moves state sees to it that all replicas have come equally far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from penstock.stages.batch import Ints
from penstock.stages.saved_state import Piece, decode, encode
from penstock.stages.site import Site
from penstock.stages.touched import Touched


class ByBucket(ABC):
    """A stage with a state per key."""

    site: Site
    _touched: Touched

    def settle(self) -> None:
        """Take in what still waits, because somebody looks at the state."""
        return

    @property
    @abstractmethod
    def depends_on(self) -> Mapping[str, str]:
        """What must be the same for saved state to fit."""

    @abstractmethod
    def _begin(self) -> None:
        """Forget everything."""

    @abstractmethod
    def _piece(self, bucket: int, slots: Ints) -> Piece:
        """What is known of the keys of a bucket, to be saved."""

    @abstractmethod
    def _load(self, piece: Piece) -> None:
        """Take up a bucket."""

    def snapshot(self) -> dict[int, bytes]:
        """The state per bucket: all of it at first, then what changed since the last snapshot."""
        self.settle()
        pieces = [self._piece(bucket, slots) for bucket, slots in self._touched.take().items()]
        return {piece.bucket: encode(piece, self.site.step, self.depends_on) for piece in pieces}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Go back to a snapshot, or take up some buckets of one that other replicas made."""
        pieces = [decode(data, self.site.step, self.depends_on) for data in saved.values()]
        self._begin()
        for piece in pieces:
            self._load(piece)
        self._touched.start()

    def in_hand(self) -> dict[int, Any]:
        """All state per bucket, for `change_hands` of this replica or of another in the process."""
        self.settle()
        return {bucket: self._taken_out(bucket, slots) for bucket, slots in self._touched.held().items()}

    def change_hands(self, held: Mapping[int, Any], *, gone: Collection[int], came: Collection[int]) -> None:
        """Have this state and no other, because buckets have gone to other replicas, or come from them.

        Those that came are to be saved, also where nothing is left of them; those that went, elsewhere.
        """
        noting, news = self._touched.noting, self._touched.news()
        self._begin()
        for part in held.values():
            self._put_in(part)
        self._touched.go_on(noting, [bucket for bucket in news if bucket not in gone] + list(came))

    def _taken_out(self, bucket: int, slots: Ints) -> Any:
        return self._piece(bucket, slots)

    def _put_in(self, part: Any) -> None:
        self._load(part)
