"""Order restored behind replicas: channels whose batches are numbered are read ticket by ticket."""

from __future__ import annotations

from penstock.engines.local.channels.channel import Channel


class OrderedMerge:
    """The channels of all replicas: the one with the next ticket is read, all where a round ends.

    now  the channels that may be read
    """

    def __init__(self, channels: list[Channel], n_active: int) -> None:
        self._channels, self._turn = channels, 0
        self._first, self._n_active = 0, n_active
        self._waiting: list[Channel] = []
        self.now: list[Channel] = channels[:1]

    def next(self, ticket: int) -> None:
        """A numbered batch has come whole."""
        assert ticket == self._turn, f"ticket {ticket} came, and {self._turn} was next"
        self._turn += 1
        self.now = [self._whose()]

    def wait_for_others(self, channel: Channel) -> None:
        """The end of a round, or of everything, stands in all channels between the same tickets."""
        if not self._waiting:
            self._waiting = list(self._channels)
        self._waiting.remove(channel)
        self.now = self._waiting or [self._whose()]

    def rescaled(self, channel: Channel, n_active: int) -> None:
        """So does a new number of replicas that have their turn."""
        self._first, self._n_active = self._turn, n_active
        self.wait_for_others(channel)

    def _whose(self) -> Channel:
        return self._channels[replica_for(self._turn, self._first, self._n_active)]


def replica_for(ticket: int, first: int, n_active: int) -> int:
    """The replica that gets a numbered batch; since ticket `first` so many replicas are active."""
    return (ticket - first) % n_active
