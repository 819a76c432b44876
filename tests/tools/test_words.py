"""Names and docstrings use the field's words: in small trees where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import pages, words


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write a package; return the folder of its sources."""
    for name, text in files.items():
        file = folder / "src" / "penstock" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder / "src"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("x.py", "def made(): ...\n", "'made' is a participle"),
        ("x.py", "def sending(): ...\n", "'sending' is a participle"),
        ("x.py", "class Dealt: ...\n", "'Dealt' is a participle"),
        ("x.py", "class LegPlan: ...\n", "'leg' is not a word of the field"),
        ("x.py", "shelf = 1\n", "'shelf' is not a word of the field"),
        ("x.py", "found = 1\n", "the variable 'found' does not say what it holds"),
        ("x.py", "def read(what): ...\n", "the parameter 'what' does not say what it holds"),
        ("x.py", 'def size():\n    """The size."""\n', "begins with 'The', not with a verb"),
        ("telling.py", "", "the file is named 'telling'"),
    ],
)
def test_a_wrong_word_is_reported(tmp_path: Path, name: str, text: str, fault: str) -> None:
    package = write(tmp_path, {name: text}) / "penstock"
    assert any(fault in line for line in words.faults(package))


@pytest.mark.parametrize(
    "text",
    [
        "def build_plan(): ...\n",
        "class HashIndex: ...\n",
        "class Ring: ...\n",
        "def tumbling(): ...\n",
        'def size():\n    """Return the size."""\n',
        'class Batch:\n    """The unit of exchange."""\n',
    ],
)
def test_a_word_of_the_field_is_left_alone(tmp_path: Path, text: str) -> None:
    assert list(words.faults(write(tmp_path, {"x.py": text}) / "penstock")) == []


def test_names_and_docstrings_of_tests_are_sentences_but_their_variables_are_not(tmp_path: Path) -> None:
    text = 'def test_a_leg_is_told():\n    """The leg."""\n    told = 1\n'
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(text, encoding="utf-8")
    (fault,) = words.faults(tmp_path / "tests")
    assert "the variable 'told' does not say what it holds" in fault


def test_a_short_module_with_one_importer_in_its_folder_is_a_page(tmp_path: Path) -> None:
    source = write(tmp_path, {"a/x.py": "from penstock.a.y import f\n", "a/y.py": "def f(): ...\n"})
    (fault,) = pages.faults(source)
    assert fault == "penstock/a/y.py: 1 lines and only penstock.a.x imports it: a page of that module"


def test_a_module_with_two_importers_or_one_elsewhere_is_no_page(tmp_path: Path) -> None:
    user = "from penstock.a.y import f\n"
    source = write(tmp_path, {"a/x.py": user, "a/z.py": user, "a/y.py": "def f(): ...\n"})
    assert list(pages.faults(source)) == []
    source = write(tmp_path / "other", {"b/x.py": user, "a/y.py": "def f(): ...\n"})
    assert list(pages.faults(source)) == []


def test_long_modules_and_full_folders_are_reported(tmp_path: Path) -> None:
    files = {f"a/m{at}.py": "" for at in range(pages.MOST_MODULES + 1)}
    source = write(tmp_path, {**files, "x.py": "a = 1\n" * (pages.LONGEST + 1)})
    assert sorted(pages.faults(source)) == [
        f"penstock/a: {pages.MOST_MODULES + 1} modules, more than {pages.MOST_MODULES}",
        f"penstock/x.py: {pages.LONGEST + 1} lines, more than {pages.LONGEST}: did a second idea move in?",
    ]
