"""Rooms: what is put in can be taken out, on both sides of a fork, also when it outgrows the room."""

from __future__ import annotations

import os

import pytest

from penstock.engines.local.processes.worker import MIN_NBYTES, SharedBuffer
from penstock.errors import EngineError


@pytest.fixture
def room() -> SharedBuffer:
    return SharedBuffer()


def test_what_is_put_in_is_taken_out(room: SharedBuffer) -> None:
    sizes = room.put([b"one", b"", memoryview(b"three")])
    assert sizes == [3, 0, 5]
    assert room.take(sizes) == [b"one", b"", b"three"]
    room.close()


def test_a_room_grows_with_what_is_put_in_and_stays_large(room: SharedBuffer) -> None:
    body = bytes(range(256)) * (MIN_NBYTES // 100)
    assert room.take(room.put([body])) == [body]
    assert room.nbytes >= len(body) > MIN_NBYTES
    assert room.take(room.put([b"small"])) == [b"small"]
    room.close()


def test_the_other_side_sees_what_outgrew_the_room_after_the_fork(room: SharedBuffer) -> None:
    body = b"x" * (3 * MIN_NBYTES)
    child = os.fork()
    if not child:
        room.put([body])
        os._exit(0)
    os.waitpid(child, 0)
    assert room.nbytes == MIN_NBYTES
    assert room.take([len(body)]) == [body]
    room.close()


def test_without_memory_the_error_says_how_much_was_wanted(
    room: SharedBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, start: int, size: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(EngineError, match=f"no memory for {2 * MIN_NBYTES} bytes") as failure:
        room.put([b"x" * (2 * MIN_NBYTES)])
    assert 'workers="thread"' in str(failure.value.hint)
    room.close()


def test_it_works_where_files_cannot_be_made_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    room = SharedBuffer()
    assert room.take(room.put([b"y" * (2 * MIN_NBYTES)])) == [b"y" * (2 * MIN_NBYTES)]
    room.close()
