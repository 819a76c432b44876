"""Which files a path means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.readers import paths
from penstock.connect.readers.paths import list_files
from penstock.errors import ConnectorError


def touch(file: Path, at: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (at, at))
    return file


def test_files_come_by_time_and_then_by_name(tmp_path: Path) -> None:
    late, b, a = touch(tmp_path / "0.csv", 9), touch(tmp_path / "b.csv", 1), touch(tmp_path / "a.csv", 1)
    assert list_files(tmp_path) == [a, b, late]


def test_hidden_files_and_manifests_are_not_data(tmp_path: Path) -> None:
    a = touch(tmp_path / "a.csv")
    touch(tmp_path / ".a.csv.tmp")
    touch(tmp_path / "_SUCCESS")
    touch(tmp_path / "_penstock" / "manifest.json")
    assert list_files(tmp_path) == list_files(f"{tmp_path}/*") == [a]


def test_a_file_named_outright_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    file = touch(tmp_path / "_odd[1].csv")
    assert list_files(file) == [file]


def test_a_glob_reaches_into_folders_and_a_list_names_each_file_once(tmp_path: Path) -> None:
    a, b = touch(tmp_path / "x" / "a.csv"), touch(tmp_path / "y" / "b.csv")
    assert list_files(f"{tmp_path}/**/*.csv") == [a, b]
    assert list_files([a, f"{tmp_path}/*/*.csv"]) == [a, b]


def test_a_glob_skips_hidden_folders_unless_it_names_them(tmp_path: Path) -> None:
    a, b = touch(tmp_path / "day=1" / "a.csv"), touch(tmp_path / "day=1" / "_raw" / "b.csv")
    touch(tmp_path / "_penstock" / "staged" / "c.csv")
    touch(tmp_path / "_penstock" / "manifest.json")
    assert list_files(f"{tmp_path}/**") == [a]
    assert list_files(f"{tmp_path}/*/_raw/*.csv") == [b]


def test_an_empty_folder_means_no_files(tmp_path: Path) -> None:
    assert list_files(tmp_path) == []


def test_a_folder_with_subfolders_is_refused_because_their_rows_would_be_missed(tmp_path: Path) -> None:
    touch(tmp_path / "day=1" / "a.csv")
    with pytest.raises(ConnectorError, match='holds the folder "day=1"') as caught:
        list_files(tmp_path)
    assert f"{tmp_path}/**" in str(caught.value.hint)


def test_a_path_that_does_not_exist_is_refused_with_what_does(tmp_path: Path) -> None:
    touch(tmp_path / "events.csv")
    with pytest.raises(ConnectorError, match="does not exist") as caught:
        list_files(tmp_path / "event.csv")
    assert caught.value.hint == f"{tmp_path}/ holds events.csv"
    with pytest.raises(ConnectorError, match="does not exist") as caught:
        list_files(tmp_path / "nowhere" / "a.csv")
    assert "working folder" in str(caught.value.hint)


def test_a_glob_without_a_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no file matches"):
        list_files(f"{tmp_path}/*.csv")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ConnectorError, match="the list of paths is empty"):
        list_files([])


def test_a_link_to_nothing_is_no_file_of_a_folder_or_a_glob(tmp_path: Path) -> None:
    b = touch(tmp_path / "b.csv")
    (tmp_path / "a.csv").symlink_to(tmp_path / "gone.csv")
    (tmp_path / "itself.csv").symlink_to("itself.csv")
    assert list_files(tmp_path) == list_files(f"{tmp_path}/*.csv") == [b]


@pytest.mark.parametrize("target", ["gone.csv", "a.csv"])
def test_a_link_to_nothing_that_is_named_is_refused_with_where_it_leads(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.csv").symlink_to(target)
    with pytest.raises(ConnectorError, match=r'a\.csv" is a link to nothing') as caught:
        list_files([tmp_path, tmp_path / "a.csv"])
    assert caught.value.detail == f'it leads to "{target}"'


@pytest.mark.parametrize("path", ["", "/*.csv", "/**"])
def test_a_file_that_is_removed_while_it_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    gone, left = touch(tmp_path / "gone.csv"), touch(tmp_path / "left.csv")
    remove_once_listed(gone, monkeypatch)
    assert list_files(f"{tmp_path}{path}") == [left]
    assert not gone.exists()


def test_a_file_that_is_named_and_removed_while_it_is_listed_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, left = touch(tmp_path / "gone.csv"), touch(tmp_path / "left.csv")
    remove_once_listed(gone, monkeypatch)
    with pytest.raises(ConnectorError, match=r'gone\.csv" does not exist') as caught:
        list_files([gone, left])
    assert caught.value.hint == f"{tmp_path}/ holds left.csv"


def test_a_file_that_may_not_be_looked_at_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, stat = touch(tmp_path / "a.csv"), os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path) == str(file):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr("os.stat", refuse)
    with pytest.raises(ConnectorError, match=r'a\.csv" cannot be looked at: Permission denied'):
        list_files(tmp_path)


def remove_once_listed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be removed just after it was listed: before its time is asked for."""
    list_names = paths._files

    def remove(text: str) -> list[Path]:
        names = list_names(text)
        file.unlink(missing_ok=True)
        return names

    monkeypatch.setattr(paths, "_files", remove)


def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", forbidden)
    with pytest.raises(ConnectorError, match="cannot be listed: Permission denied"):
        list_files(tmp_path)


@pytest.mark.parametrize("wrong", [None, 3, b"a.csv", [None], ["a", 3]])
def test_what_is_no_path_is_refused(wrong: Any) -> None:
    with pytest.raises(ConnectorError, match="is not a path"):
        list_files(wrong)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ConnectorError, match="cannot be looked at: File name too long"):
        list_files("a" * 5_000)
