"""Lines: messages and bodies from one end to the other, and back."""

from __future__ import annotations

from multiprocessing.connection import Pipe

import pytest

from penstock.engines.local.processes.worker import Connection, SharedBuffer

Ends = tuple[Connection, Connection]


@pytest.fixture
def ends() -> Ends:
    (ours, theirs), there, back = Pipe(), SharedBuffer(), SharedBuffer()
    return Connection(ours, write=there, read=back), Connection(theirs, write=back, read=there)


def test_messages_come_with_their_bodies_in_both_directions(ends: Ends) -> None:
    here, there = ends
    here.send({"call": "process", "watermark": float("-inf")}, [b"body"])
    assert there.receive() == ({"call": "process", "watermark": float("-inf")}, [b"body"])
    there.send({"ports": []})
    assert here.receive() == ({"ports": []}, [])
    here.close()
    there.close()


def test_a_message_may_be_longer_than_the_socket_takes_at_once(ends: Ends) -> None:
    here, there = ends
    text = "long " * 10_000
    here.send({"detail": text})
    assert there.receive()[0]["detail"] == text
    here.close()
    there.close()


def test_who_waits_is_told_when_the_other_end_hangs_up(ends: Ends) -> None:
    here, there = ends
    there.close()
    with pytest.raises(EOFError):
        here.receive()
    here.close()
