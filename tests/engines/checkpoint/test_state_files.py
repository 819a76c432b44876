"""State files give back every piece as it was written, and refuse a file that is not whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash

from penstock.engines.checkpoint.state_files import StateFiles, StateHandle
from penstock.errors import CheckpointError


def piece(body: bytes) -> bytes:
    return body + xxhash.xxh3_64_digest(body)


def test_pieces_come_back_as_they_were_and_alike_ones_take_little_room(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=True)
    pieces = {
        "a": {bucket: piece(b"the same words %d" % bucket * 50) for bucket in range(80)},
        "b": {3: piece(b"")},
    }
    places = files.write(7, "0-1", pieces)
    assert {step: files.read(place, step) for step, place in places.items()} == pieces
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < sum(map(len, pieces["a"].values())) / 10


def test_nothing_to_save_makes_no_file(tmp_path: Path) -> None:
    assert StateFiles(str(tmp_path), durable=False).write(0, "0-0", {"a": {}}) == {"a": {}}
    assert list(tmp_path.iterdir()) == []


def read_or_refused(files: StateFiles, places: dict[int, StateHandle]) -> dict[int, bytes] | CheckpointError:
    try:
        return files.read(places, "a")
    except CheckpointError as refused:
        return refused


def test_a_file_with_any_byte_changed_is_refused_by_name(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=False)
    places = files.write(0, "0-0", {"a": {1: piece(b"one and another one"), 2: piece(b"two")}})["a"]
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        result = read_or_refused(files, places)
        if isinstance(result, CheckpointError):
            assert result.fact == 'saved state of step "a" cannot be read'
            assert str(result.detail).startswith(f"state/{file.name}: ")
        else:  # a bit that zstd does not read
            assert result == {1: piece(b"one and another one"), 2: piece(b"two")}


@pytest.mark.parametrize("n", [0, 4, 20])
def test_a_file_that_ends_too_early_is_refused(n: int, tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=False)
    places = files.write(0, "0-0", {"a": {1: piece(b"words, and more words")}})["a"]
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:n])
    with pytest.raises(CheckpointError, match='saved state of step "a" cannot be read'):
        files.read(places, "a")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=False)
    places = files.write(0, "0-0", {"a": {1: piece(b"words")}})["a"]
    (file,) = tmp_path.iterdir()
    file.unlink()
    with pytest.raises(CheckpointError) as refused:
        files.read(places, "a")
    assert refused.value.hint == "bring the file back, or start with an empty checkpoint folder"
