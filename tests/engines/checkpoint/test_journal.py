"""The journal of a source: what a crash may leave of it, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import xxhash

from penstock.connect.readers import file_journal
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import JournalEntry, Mark
from penstock.engines.checkpoint.journal import Journal as RunJournal
from penstock.errors import CheckpointError


def Journal(place: Path, done: int, known: tuple[int, str] | None = None) -> RunJournal:
    """The journal of one source of one run."""
    return RunJournal(place, "rows", "this run", done=done, known=known)


def seen(path: Path) -> FileRange:
    return FileRange(str(path), 0, 3, 5)


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


def test_of_batches_that_are_done_the_last_of_each_file_is_kept_and_few_that_are_gone(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_journal, "MAX_GONE", 1)
    (tmp_path / "here").touch()
    journal = Journal(place, 0)
    journal.append(JournalEntry(1, (seen(tmp_path / "here"), seen(tmp_path / "gone"))))
    journal.append(JournalEntry(2, (seen(tmp_path / "gone, too"), seen(tmp_path / "here"))))
    journal.append(JournalEntry(1, (), Mark.FAILED))
    journal.append(JournalEntry(0, (seen(tmp_path / "left out"),), Mark.SKIPPED))
    journal.append(JournalEntry(3, (seen(tmp_path / "gone, and not done"),)))
    stored = [
        JournalEntry(2, (seen(tmp_path / "gone, too"), seen(tmp_path / "here"))),
        JournalEntry(0, (seen(tmp_path / "left out"),), Mark.SKIPPED),
        JournalEntry(3, (seen(tmp_path / "gone, and not done"),)),
    ]
    again = Journal(place, 2)
    assert list(again.entries()) == stored
    again.keep()
    assert '/gone"' not in place.read_text()
    assert list(Journal(place, 2).entries()) == stored


def test_of_a_batch_that_failed_what_was_planned_anew_counts_alone(place: Path, tmp_path: Path) -> None:
    before, grown, moved = (FileRange(str(tmp_path / "a"), 0, last, 5, head=str(last)) for last in (3, 6, 6))
    moved = moved._replace(path=str(tmp_path / "b"))
    journal = Journal(place, 0)
    journal.append(JournalEntry(1, (before,)), JournalEntry(2, (grown, seen(tmp_path / "removed"))))
    journal.append(JournalEntry(2, (), Mark.FAILED))
    assert list(Journal(place, 0).entries())[1].files[0] == grown
    assert list(Journal(place, 2).entries())[-1].files[0] == grown  # nobody has planned it anew
    journal.append(JournalEntry(1, (moved,), Mark.MOVED), JournalEntry(2))
    assert list(Journal(place, 2).entries()) == [
        JournalEntry(1, (before,)),
        JournalEntry(1, (moved,), Mark.MOVED),
    ]


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


@pytest.mark.parametrize(("was", "becomes"), [(": [1,", ": [7,"), ("{", "["), ('"check"', '"chuck"')])
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
    assert str(failure.value.detail).startswith(f"{place}: line ")
    assert "bring it back from a backup" in str(failure.value.hint)


def write_three(place: Path, tmp_path: Path) -> tuple[int, str]:
    """Append three entries; return the head."""
    journal = Journal(place, 0)
    for number in (1, 2, 3):
        journal.append(JournalEntry(number, (seen(tmp_path / str(number)),)))
    return journal.head


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_line_that_is_missing_is_refused_wherever_it_was(place: Path, tmp_path: Path, line: int) -> None:
    write_three(place, tmp_path)
    lines = place.read_text().splitlines(keepends=True)
    place.write_text("".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(CheckpointError, match=r"damaged: rows\.jsonl cannot be read"):
        Journal(place, 0)


@pytest.mark.parametrize("lost", ["a last line", "a part of it", "everything behind the first", "everything"])
def test_a_journal_that_is_older_than_what_was_done_by_it_is_refused(
    place: Path, tmp_path: Path, lost: str
) -> None:
    head = write_three(place, tmp_path)
    lines = place.read_text().splitlines(keepends=True)
    left = {
        "a last line": lines[:-1],
        "a part of it": [*lines[:-1], lines[-1][:20]],
        "everything behind the first": lines[:1],
        "everything": [],
    }
    place.write_text("".join(left[lost]))
    with pytest.raises(CheckpointError, match=r"rows\.jsonl (is older than what was done|cannot be read)"):
        Journal(place, 0, head)


def test_the_chain_goes_on_over_runs(place: Path, tmp_path: Path) -> None:
    first = write_three(place, tmp_path)
    again = Journal(place, 2, first)
    again.append(JournalEntry(4, (seen(tmp_path / "4"),)))
    assert again.head[0] == 4
    for head in (first, again.head):
        assert Journal(place, 2, head).head == again.head
    with pytest.raises(CheckpointError, match="has other lines than it had"):
        Journal(place, 2, (4, first[1]))


def test_a_journal_of_another_run_or_source_is_refused(place: Path, tmp_path: Path) -> None:
    write_three(place, tmp_path)
    for source, run in (("others", "this run"), ("rows", "another run")):
        with pytest.raises(CheckpointError, match="belongs to another run or source"):
            RunJournal(place, source, run)
    assert list(RunJournal(place, "rows", "a new run", is_new=True).entries()) == []


def test_a_journal_that_knows_more_batches_to_be_done_than_the_manifest_is_refused(
    place: Path, tmp_path: Path
) -> None:
    Journal(place, 0, write_three(place, tmp_path)).keep()
    Journal(place, 3).keep()
    with pytest.raises(CheckpointError, match="is newer than the manifests"):
        Journal(place, 2)


def test_a_journal_of_the_format_before_is_read_and_becomes_a_chain(place: Path, tmp_path: Path) -> None:
    place.parent.mkdir()
    lines = []
    for number in (1, 2):
        body = json.dumps([number, [list(seen(tmp_path / str(number)))]])
        check = xxhash.xxh3_64_hexdigest(body.encode())
        lines.append(json.dumps({"check": check, "body": body}) + "\n")
    place.write_text("".join(lines))
    old = RunJournal(place, "rows", "this run", is_old=True)
    assert [entry.until for entry in old.entries()] == [1, 2]
    old.append(JournalEntry(3))
    assert [entry.until for entry in Journal(place, 0, old.head).entries()] == [1, 2, 3]


def test_a_place_that_cannot_be_written_is_an_error_of_the_checkpoint(place: Path, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file, not a folder")
    with pytest.raises(CheckpointError, match="the checkpoint cannot be written"):
        Journal(place, 0).keep()
    (tmp_path / "files").unlink()
    journal = Journal(place, 0)
    journal.keep()
    place.unlink()
    place.mkdir()
    with pytest.raises(CheckpointError, match="the checkpoint cannot be written"):
        journal.append(JournalEntry(1))
