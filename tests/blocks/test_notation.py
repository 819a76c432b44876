"""The one-line notation is the paper's, and the tree shows the same blocks by indentation."""

from __future__ import annotations

from penstock.blocks import Input, Kind, count, derive, notation, tree
from tests.blocks.test_grammar import MERGE, SPLIT, both, seed, several
from tests.blocks.test_terms import pipe
from tests.naive.block_counts import counts_by_text
from tests.support.block_shapes import APPLICATIONS, KEY_BY, source, step


def test_the_notation_is_that_of_the_paper() -> None:
    nodes = [
        source("src"),
        step("filter", Kind.F, "src"),
        step("win", Kind.KW, "filter", routing=KEY_BY, n=2),
        step("sink", Kind.SNK, "win", n=2),
    ]
    assert notation(derive(nodes).term) == (
        "A2A([Pipe(Seq(src) • Comb(Seq(filter), Seq(D_keyby)))], [Pipe(Seq(win) • Seq(sink))]^2)"
    )


def test_a_container_of_one_block_is_that_block_except_beside_an_all_to_all() -> None:
    assert notation(seed("a")) == "Pipe(Seq(a))"
    assert notation(both(seed("a"), seed("b"))) == "A2A([Pipe(Seq(a))], [Pipe(Seq(b))])"


def test_the_right_side_of_a_nested_matryoshka_is_written_without_brackets() -> None:
    nested = both(seed("a"), both(seed("b"), seed("c")))
    assert notation(nested) == "A2A([Pipe(Seq(a))], A2A([Pipe(Seq(b))], [Pipe(Seq(c))]))"
    assert notation(both(seed("z"), MERGE)).startswith("A2A([Pipe(Seq(z))], [A2A(")


def test_a_term_is_shown_by_its_notation() -> None:
    assert repr(SPLIT) == notation(SPLIT)


def test_what_is_bracketed_is_what_is_counted() -> None:
    for nodes in APPLICATIONS.values():
        term = derive(nodes).term
        assert counts_by_text(notation(term)) == count(term)


def test_the_tree_shows_one_line_per_block_and_node() -> None:
    nodes = [
        source("src", 2),
        step("win", Kind.KW, "src", routing=KEY_BY, n=3),
        step("out", Kind.SNK, "win", n=3),
        step("late", Kind.SNK, Input("win", "late")),
    ]
    assert tree(derive(nodes).term) == (
        "A2A\n"
        "  from A2A\n"
        "    from Pipe ^2\n"
        "      Comb(Seq(src), Seq(D_keyby))\n"
        "    to Pipe ^3\n"
        "      Comb(Seq(win), Comb◀(Seq(S_tag), {Seq(D_forward), Seq(D_forward)}))\n"
        "  to 2 side by side\n"
        "    Pipe ^3\n"
        "      Seq(out)\n"
        "    Pipe\n"
        "      Seq(late)"
    )


def test_beyond_twenty_levels_the_tree_says_the_depth_as_a_number() -> None:
    term = both(seed("x"), several(pipe("a"), pipe("b")))
    for _ in range(15):
        term = both(seed("x"), several(term, pipe("b")))
    assert f"{'  ' * 20}(21) from Pipe" in tree(term).splitlines()
