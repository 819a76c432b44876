"""The documents name things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages

_LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")
_PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`")


@pytest.mark.parametrize("page", pages(), ids=[str(page.relative_to(ROOT)) for page in pages()])
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def test_paths_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    roots = (ROOT / "src" / "penstock", ROOT)
    named = set(_PATH.findall(text))
    assert len(named) > 20
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


def _section(title: str) -> str:
    """Return the section of ARCHITECTURE.md with this title."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("where", ["in process", "on Spark", "in the reference engine"])
def test_the_path_of_a_row_has_at_most_fifteen_hops_each_with_its_file(where: str) -> None:
    steps = re.split(r"^\d+\. ", _section(f"The path of one row, {where}"), flags=re.MULTILINE)[1:]
    assert 3 <= len(steps) <= 15
    assert [step for step in steps if not _PATH.search(step)] == []


@pytest.mark.parametrize(("title", "least"), [("Ten questions", 10), ("To change X, open Y", 20)])
def test_every_question_is_answered_by_a_path(title: str, least: int) -> None:
    rows = re.findall(r"^\| (?!---)(.*) \|$", _section(title), flags=re.MULTILINE)[1:]
    assert len(rows) >= least
    assert [row for row in rows if not _PATH.search(row)] == []


def test_the_makefile_has_the_commands_that_the_documents_name() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    for command in set(re.findall(r"`make ([a-z]+)`", text)) | {"demo", "test"}:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def _glossary() -> str:
    return (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_classes_in_the_glossary_exist() -> None:
    sources = (file.read_text(encoding="utf-8") for file in (ROOT / "src" / "penstock").rglob("*.py"))
    classes = {name for text in sources for name in re.findall(r"^class (\w+)", text, re.MULTILINE)}
    named = set(re.findall(r"`([A-Z]\w+)`", _glossary()))
    assert len(named) > 100
    assert sorted(named - classes) == []


def test_a_word_has_one_entry_in_the_glossary() -> None:
    words = re.findall(r"\*\*([^*]+)\*\*", _glossary())
    assert sorted({word for word in words if words.count(word) > 1}) == []
