"""WindFlow's Table 3, from the shapes of the seven applications with one replica and no chaining."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.blocks import Counts, count, derive, notation
from tests.naive.block_counts import counts_by_formula
from tests.support.block_grammar import is_multipipe
from tests.support.block_shapes import APPLICATIONS, SD, VS

PRINTED = {
    "FD": (4, 1, 2, 2, 1),
    "SD": (5, 1, 2, 2, 1),
    "TM": (5, 1, 2, 2, 1),
    "WC": (5, 1, 2, 2, 1),
    "YB": (6, 1, 2, 2, 1),
    "LR": (16, 5, 5, 4, 2),
}
PAGE = Path(__file__).parents[2] / "docs" / "table3.md"


@pytest.mark.parametrize("name", list(PRINTED))
def test_six_applications_use_as_many_blocks_as_the_paper_prints(name: str) -> None:
    assert count(derive(APPLICATIONS[name]).term) == PRINTED[name]


def test_voip_stream_agrees_in_seqs_and_combiners_and_has_one_less_of_the_others() -> None:
    printed = Counts(32, 13, 14, 15, 9)
    ours = count(derive(VS).term)
    assert ours == (32, 13, 13, 14, 8)
    assert [theirs - our for theirs, our in zip(printed, ours, strict=True)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", list(APPLICATIONS))
def test_every_application_is_a_multipipe_of_the_grammar(name: str) -> None:
    derived = derive(APPLICATIONS[name])
    assert is_multipipe(derived.term)
    assert count(derived.term) == counts_by_formula(APPLICATIONS[name])


def test_the_page_shows_the_derivation_and_the_term_of_voip_stream() -> None:
    page = PAGE.read_text(encoding="utf-8")
    derived = derive(VS)
    assert str(derived) in page
    assert notation(derived.term) in page


def test_spike_detection_takes_the_three_forms_of_figure_17() -> None:
    ends = "Pipe(Seq(average) • Seq(spikes) • Seq(sink))"
    assert [
        notation(derive(SD, composition=composition).term)
        for composition in ("combined", "dedicated", "centralised")
    ] == [
        f"A2A([Pipe(Comb(Seq(source), Seq(D_keyby)))], [{ends}])",
        f"A2A([Pipe(Seq(source) • Seq(D_keyby))], [{ends}])",
        f"A2A([Pipe(Seq(source))], A2A([Pipe(Seq(D_keyby))], [{ends}]))",
    ]
