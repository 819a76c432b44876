"""The documents name things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages

_LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")
_PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`")
_PLANNED = {"engines/spark"}


@pytest.mark.parametrize("page", pages(), ids=[str(page.relative_to(ROOT)) for page in pages()])
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def test_paths_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    roots = (ROOT / "src" / "penstock", ROOT)
    named = {path for path in _PATH.findall(text) if path not in _PLANNED}
    assert len(named) > 20
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


def test_the_makefile_has_the_commands_that_the_documents_name() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    for command in set(re.findall(r"`make ([a-z]+)`", text)) | {"demo", "test"}:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
