"""Modules of the user's program reach the workers, once each, and a change replaces what was sent."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.session.py_files import check_py_files
from penstock.errors import EngineError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the driver imports from, and workers do not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_package(folder: Path) -> Path:
    (folder / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "rates.txt").write_text("3")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "__pycache__" / "old.pyc").write_text("")
    (folder / ".hidden").write_text("")
    return folder


def names_in(file: Path) -> list[str]:
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


def test_a_module_becomes_a_zip_with_its_digest_in_the_name(folder: Path) -> None:
    (folder / "helpers.py").write_text("FACTOR = 2\n")
    (file,) = check_py_files("helpers.py")
    assert file.path == folder / "helpers.py"
    assert names_in(file.write(folder)) == ["helpers.py"]
    (same,) = check_py_files([Path("helpers.py"), folder / "helpers.py"])
    assert same.name == file.name
    (folder / "helpers.py").write_text("FACTOR = 3\n")
    (changed,) = check_py_files(("helpers.py",))
    assert changed.name.startswith("helpers-")
    assert changed.name != file.name


def test_a_package_folder_is_zipped_with_its_data_and_without_what_python_wrote(folder: Path) -> None:
    write_package(folder / "prices")
    (file,) = check_py_files(("prices/",))
    assert names_in(file.write(folder)) == [
        "prices/__init__.py",
        "prices/inner/__init__.py",
        "prices/inner/rates.txt",
    ]


@pytest.mark.parametrize("suffix", [".zip", ".egg", ".whl"])
def test_an_archive_is_sent_as_it_is_under_a_name_that_spark_takes_for_python(
    folder: Path, suffix: str
) -> None:
    archive = folder / f"lib-1.0{suffix}"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("lib.py", "FACTOR = 2\n")
    (file,) = check_py_files((str(archive),))
    assert file.name.endswith(".zip")
    (folder / "sent").mkdir()
    assert file.write(folder / "sent").read_bytes() == archive.read_bytes()


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("helper.py", 'py_files names "helper.py", which does not exist'),
        ("notes.txt", 'py_files names "notes.txt", which is no Python'),
        ("plain", 'py_files names the folder "plain", which is no package: it has no __init__.py'),
        ("torn.zip", 'py_files names "torn.zip", which cannot be read'),
        ("data.zip", 'py_files names "data.zip", in which there is no Python'),
        ("native.whl", 'py_files names "native.whl", which has compiled modules'),
        (5, "py_files=5 is not a list of paths"),
        ([b"helpers.py"], "py_files=[b'helpers.py'] is not a list of paths"),
    ],
)
def test_what_python_cannot_import_is_refused_before_spark_starts(folder: Path, path: Any, fact: str) -> None:
    (folder / "helpers.py").write_text("")
    (folder / "notes.txt").write_text("")
    (folder / "plain").mkdir()
    (folder / "torn.zip").write_text("no zip")
    for name, inside in (("data.zip", "rates.csv"), ("native.whl", "fast.cpython-311.so")):
        with zipfile.ZipFile(folder / name, "w") as zipped:
            zipped.writestr(inside, "")
    with pytest.raises(EngineError) as caught:
        check_py_files(path if not isinstance(path, str) else (path,))
    assert caught.value.fact == fact
    assert caught.value.hint
    if path == "helper.py":
        assert "beside it there is helpers.py" in str(caught.value.detail)


def import_again(name: str) -> ModuleType:
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return importlib.import_module(name)


@pytest.fixture
def helpers() -> Iterator[str]:
    yield "sent_helpers"
    sys.modules.pop("sent_helpers", None)


@pytest.mark.slow
def test_workers_import_what_was_sent_and_after_a_change_the_new_version(
    spark: Any, folder: Path, helpers: str
) -> None:
    def run() -> list[Any]:
        graph = ps.PipeGraph("sent")
        rows = graph.source(ps.read.batches([[{"v": 1}, {"v": 2}]], schema={"v": int}))
        pipe = rows.map(import_again(helpers).multiply, schema={"v": int})
        table = pipe.collect("spark", options=ps.SparkOptions(py_files=f"{helpers}.py"))
        return list(table["v"].to_pylist())

    def write(factor: int) -> None:
        text = f"FACTOR = {factor}\n\n\ndef multiply(row):\n    return {{'v': row.v * FACTOR}}\n"
        (folder / f"{helpers}.py").write_text(text)

    context, path = spark.sparkContext, list(sys.path)
    write(3)
    n_files = len(context.listFiles)
    assert run() == [3, 6]
    assert run() == [3, 6]
    assert len(context.listFiles) == n_files + 1  # sent once
    write(5)
    assert run() == [5, 10]
    write(3)
    assert run() == [3, 6]
    assert len(context.listFiles) == n_files + 2
    assert len([name for name in context._python_includes if helpers in name]) == 1
    assert sys.path == path
