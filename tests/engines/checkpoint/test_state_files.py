"""State files give back every piece as it was written, and refuse a file that is not whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import xxhash

from penstock.engines.checkpoint.state_files import StateFiles, StateHandle
from penstock.errors import CheckpointError
from penstock.stages.stage import SavedBytes


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


def read_or_refused(
    files: StateFiles, places: dict[int, StateHandle]
) -> Mapping[int, SavedBytes] | CheckpointError:
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
            assert str(result.detail).startswith(f"{file}: ")
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
    assert str(refused.value.hint).startswith("bring it back from a backup; or start anew")
    assert str(refused.value.detail).startswith(f"{file}: FileNotFoundError")


def test_a_file_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=False)
    older = files.write(0, "0-0", {"a": {1: piece(b"older words")}})["a"]
    newer = files.write(1, "0-0", {"a": {1: piece(b"newer words")}})["a"]
    (tmp_path / newer[1].file).write_bytes((tmp_path / older[1].file).read_bytes())
    with pytest.raises(CheckpointError) as refused:
        files.read(newer, "a")
    assert f"it is {older[1].file}" in str(refused.value.detail)


def test_a_file_of_the_format_before_has_no_name_in_it_and_is_read(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path), durable=False)
    places = files.write(0, "0-0", {"a": {1: piece(b"words")}})["a"]
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().partition(b"\n")[2])
    assert files.read(places, "a") == {1: piece(b"words")}
