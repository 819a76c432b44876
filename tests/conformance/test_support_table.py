"""The support table in the docs is what the suite and its markers say."""

from __future__ import annotations

import inspect
import runpy
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_support_table_is_current() -> None:
    page: str = runpy.run_path(str(ROOT / "tools" / "support_table.py"))["table"]()
    file = ROOT / "docs" / "support.md"
    assert file.read_text(encoding="utf-8") == page, "run: python tools/support_table.py"


def test_every_file_of_cases_is_a_feature_of_its_own() -> None:
    features = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = import_module(f"tests.conformance.{file.stem}")
        cases = [case for name, case in vars(module).items() if name.startswith("test_")]
        if any({"case", "engine"} & set(inspect.signature(case_).parameters) for case_ in cases):
            features[file.name] = getattr(module, "FEATURE", None)
    assert None not in features.values(), features
    assert len(set(features.values())) == len(features)
