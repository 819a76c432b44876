"""Damage in Spark's own checkpoint of a query is found before Spark is asked, and named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from penstock.engines.spark.driver.query_log import find_damage, sign_offsets


def put(file: Path, text: str) -> None:
    """Write a file as Spark does, with its checksums beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    packed = b"crc\0" + struct.pack(">II", 512, zlib.crc32(text.encode()))
    file.with_name(f".{file.name}.crc").write_bytes(packed)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a query whose batch 2 is not done."""
    put(tmp_path / "metadata", '{"id":"7"}')
    for number in range(3):
        put(tmp_path / "offsets" / str(number), f'v1\n{{"batchWatermarkMs":0}}\n{{"planned":{number}}}')
        put(tmp_path / "sources" / "0" / str(number), 'v1\n{"path":"a.json"}')
    for number in range(2):
        put(tmp_path / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
    assert find_damage(tmp_path) is None
    return tmp_path


def test_no_log_is_whole(tmp_path: Path) -> None:
    assert find_damage(tmp_path / "none") is None
    assert find_damage(tmp_path) is None


@pytest.mark.parametrize("name", ["metadata", "offsets/0", "offsets/2", "commits/1", "sources/0/2"])
def test_any_byte_that_changed_is_found(log: Path, name: str) -> None:
    whole = (log / name).read_bytes()
    for place in range(len(whole)):
        (log / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        damage = find_damage(log)
        assert damage is not None
        assert damage[0] == log / name


@pytest.mark.parametrize("left", [b"", b"v1", b"v1\n{", b"x\n{}"])
def test_a_file_without_checksums_must_be_lines_of_json(log: Path, left: bytes) -> None:
    (log / "offsets" / ".2.crc").unlink()
    (log / "offsets" / "2").write_bytes(left)
    damage = find_damage(log)
    assert damage is not None
    assert damage[0] == log / "offsets" / "2"


@pytest.mark.parametrize("name", ["metadata", "offsets/1", "commits/1"])
def test_a_file_that_is_missing_is_found(log: Path, name: str) -> None:
    (log / name).unlink()
    damage = find_damage(log)
    assert damage is not None
    assert damage[0] == log / name


def test_old_batches_may_be_gone_but_not_the_one_before_the_last(log: Path) -> None:
    for kind in ("offsets", "commits"):
        (log / kind / "0").unlink()
    assert find_damage(log) is None
    (log / "offsets" / "1").unlink()
    assert find_damage(log) == (log / "offsets" / "1", "it is missing")


def test_a_first_batch_that_is_missing_before_the_second_is_found(tmp_path: Path) -> None:
    put(tmp_path / "metadata", '{"id":"7"}')
    put(tmp_path / "commits" / "0", 'v1\n{"nextBatchWatermarkMs":0}')
    put(tmp_path / "offsets" / "1", 'v1\n{"batchWatermarkMs":0}\n{"planned":1}')
    assert find_damage(tmp_path) == (tmp_path / "offsets" / "0", "it is missing")


def test_what_a_batch_reads_has_a_signature(log: Path) -> None:
    first, second = sign_offsets(log, 1), sign_offsets(log, 2)
    assert first
    assert first != second
    assert sign_offsets(log, 9) == ""
