"""The journal of a source: what a crash may leave of it, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connect.readers.files import FileStatus, JournalEntry
from penstock.engines.checkpoint.checkpoint import Journal
from penstock.errors import CheckpointError


def seen(path: Path) -> FileStatus:
    return FileStatus(str(path), 3, 5)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "files" / "rows.jsonl"


def test_what_was_noted_is_there_for_the_next_run(place: Path, tmp_path: Path) -> None:
    notes = [JournalEntry(1, (seen(tmp_path / "a"), seen(tmp_path / "ü b"))), JournalEntry(61)]
    journal = Journal(place, 0)
    assert list(journal.entries()) == []
    for item in notes:
        journal.append(item)
    assert list(Journal(place, 0).entries()) == notes


def test_batches_that_are_done_are_kept_only_while_their_files_are_there(place: Path, tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    journal = Journal(place, 0)
    journal.append(JournalEntry(1, (seen(tmp_path / "here"), seen(tmp_path / "gone"))))
    journal.append(JournalEntry(2, (seen(tmp_path / "gone, too"),)))
    journal.append(JournalEntry(3, (seen(tmp_path / "gone, and not done"),)))
    stored = [
        JournalEntry(1, (seen(tmp_path / "here"),)),
        JournalEntry(3, (seen(tmp_path / "gone, and not done"),)),
    ]
    assert list(Journal(place, 2).entries()) == stored
    assert len(place.read_text().splitlines()) == 2


@pytest.mark.parametrize("left", [1, 20, -2])
def test_a_line_that_a_crash_cut_short_was_never_acted_on(place: Path, tmp_path: Path, left: int) -> None:
    journal = Journal(place, 0)
    journal.append(JournalEntry(1, (seen(tmp_path / "a"),)))
    whole = place.read_text()
    journal.append(JournalEntry(2, (seen(tmp_path / "b"),)))
    second = place.read_text()[len(whole) :]
    place.write_text(whole + second[:left])
    again = Journal(place, 0)
    assert list(again.entries()) == [JournalEntry(1, (seen(tmp_path / "a"),))]
    again.append(JournalEntry(2))
    assert [entry.until for entry in Journal(place, 0).entries()] == [1, 2]


@pytest.mark.parametrize(("was", "becomes"), [("[1,", "[7,"), ("{", "["), ('"check"', '"chuck"')])
def test_a_line_that_was_changed_is_refused_by_name(
    place: Path, tmp_path: Path, was: str, becomes: str
) -> None:
    journal = Journal(place, 0)
    journal.append(JournalEntry(1, (seen(tmp_path / "a"),)))
    journal.append(JournalEntry(2))
    place.write_text(place.read_text().replace(was, becomes, 1))
    with pytest.raises(CheckpointError) as failure:
        Journal(place, 0)
    assert failure.value.fact == "the checkpoint is damaged: rows.jsonl cannot be read"
    assert "line 1" in str(failure.value.detail)


def test_a_place_that_cannot_be_written_is_an_error_of_the_checkpoint(place: Path, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file, not a folder")
    with pytest.raises(CheckpointError, match="the checkpoint cannot be written"):
        Journal(place, 0)
    (tmp_path / "files").unlink()
    journal = Journal(place, 0)
    place.unlink()
    place.mkdir()
    with pytest.raises(CheckpointError, match="the checkpoint cannot be written"):
        journal.append(JournalEntry(1))
