"""How a graph becomes a term: which rule places what, and which graphs are refused with what words."""

from __future__ import annotations

import pytest

from penstock.blocks import Derivation, Distribution, Input, Kind, Node, Operator, count, derive, notation
from penstock.errors import GraphError, Where
from tests.support.block_shapes import KEY_BY, source, step

M, SNK = Kind.M, Kind.SNK


def text(nodes: list[Node]) -> str:
    return notation(derive(nodes).term)


def rules(derived: Derivation) -> list[tuple[str, str]]:
    return [(step.rule, step.operator) for step in derived.steps]


def test_a_chain_of_operators_is_created_added_and_chained() -> None:
    nodes = [
        source("src", 2),
        step("clean", Kind.F, "src", n=2, chain=True),
        step("win", Kind.KW, "clean", routing=KEY_BY, n=3, chain=True),
        step("out", SNK, "win", n=3),
    ]
    derived = derive(nodes)
    assert notation(derived.term) == (
        "A2A([Pipe(Comb(Comb(Seq(src), Seq(clean)), Seq(D_keyby)))]^2, [Pipe(Seq(win) • Seq(out))]^3)"
    )
    assert str(derived) == (
        "1. create       src  (2 replicas)\n"
        "2. chain        clean  (forward from 2 to 2)\n"
        "3. add-shuffle  win  (chain asked, keyby from 2 to 3)\n"
        "4. add-direct   out  (forward from 3 to 3)"
    )


def test_the_derivation_says_why_an_operator_was_not_fused() -> None:
    derived = derive([source("s"), step("total", Kind.A, "s", chain=True)])
    assert str(derived.steps[1]) == (
        "add-direct   total  (chain asked, forward from 1 to 1, A is never fused)"
    )


def test_the_graph_of_the_papers_third_figure() -> None:
    #  SRC1 - OP1 = OP2 \        / OP5 - SNK1
    #                     OP4 --
    #  SRC2 - OP3 ------ /        \ SNK2          two replicas each, `=` a shuffle
    nodes = [
        source("src1", 2),
        step("op1", M, "src1", n=2),
        step("op2", M, "op1", routing=KEY_BY, n=2),
        source("src2", 2),
        step("op3", M, "src2", n=2),
        step("op4", M, "op2", "op3", routing=KEY_BY, n=2),
        step("op5", M, Input("op4", "left"), n=2),
        step("snk1", SNK, "op5", n=2),
        step("snk2", SNK, Input("op4", "right"), n=2),
    ]
    assert notation(derive(nodes, splits={"op4": "side"}).term) == (
        "A2A([A2A([Pipe(Seq(src1) • Comb(Seq(op1), Seq(D_keyby)))]^2,"
        " [Pipe(Comb(Seq(op2), Seq(D_keyby)))]^2),"
        " [Pipe(Seq(src2) • Comb(Seq(op3), Seq(D_keyby)))]^2],"
        " [A2A([Pipe(Comb(Seq(op4), Comb◀(Seq(S_side), {Seq(D_forward), Seq(D_forward)})))]^2,"
        " [[Pipe(Seq(op5) • Seq(snk1))]^2, [Pipe(Seq(snk2))]^2])])"
    )


def test_several_readers_of_one_output_are_a_split_that_copies() -> None:
    nodes = [source("s"), step("a", SNK, "s"), step("b", SNK, "s", routing=KEY_BY)]
    assert text(nodes) == (
        "A2A([Pipe(Comb(Seq(s), Comb◀(Seq(S_copy), {Seq(D_forward), Seq(D_keyby)})))],"
        " [Pipe(Seq(a)), Pipe(Seq(b))])"
    )


@pytest.mark.parametrize("side", ["late", "errors"])
def test_side_outputs_are_branches_of_a_split_by_tag(side: str) -> None:
    nodes = [source("s"), step("a", SNK, "s"), step("b", SNK, Input("s", side))]
    assert "Comb◀(Seq(S_tag)" in text(nodes)


def test_a_split_of_which_one_branch_is_read_filters() -> None:
    nodes = [source("s"), step("a", SNK, Input("s", "even"))]
    derived = derive(nodes, splits={"s": "parity"})
    assert notation(derived.term) == "Pipe(Comb(Seq(s), Seq(S_parity)) • Seq(a))"
    assert str(derived.steps[1]) == "split        s  (one branch is read, so S_parity filters)"


def test_a_side_output_read_alone_is_filtered_by_tag() -> None:
    assert text([source("s"), step("a", SNK, Input("s", "late"))]) == (
        "Pipe(Comb(Seq(s), Seq(S_tag)) • Seq(a))"
    )


def test_pipes_that_nothing_joins_are_merged_independently() -> None:
    nodes = [source("a"), source("b"), step("m", SNK, "a", "b")]
    derived = derive(nodes)
    assert rules(derived) == [("create", "a"), ("create", "b"), ("merge-ind", "m")]
    assert notation(derived.term) == (
        "A2A([Pipe(Comb(Seq(a), Seq(D_forward))), Pipe(Comb(Seq(b), Seq(D_forward)))], [Pipe(Seq(m))])"
    )


def test_some_branches_of_a_split_merge_into_one_branch_beside_the_others() -> None:
    nodes = [source("s"), *(step(name, M, "s") for name in "abc"), step("m", SNK, "b", "c")]
    assert text(nodes).endswith(
        "[Pipe(Seq(a)), A2A([Pipe(Comb(Seq(b), Seq(D_forward))), Pipe(Comb(Seq(c), Seq(D_forward)))],"
        " [Pipe(Seq(m))])])"
    )


def test_a_branch_from_a_split_straight_into_a_merge_gets_a_relay_of_the_producers_degree() -> None:
    nodes = [source("s", 2), step("a", M, "s"), step("m", SNK, "s", "a")]
    derived = derive(nodes)
    assert "[Pipe(Comb(Seq(s.out>m), Seq(D_forward)))]^2" in notation(derived.term)
    assert "create       s.out>m  (a relay into a merge)" in str(derived)


def test_a_pipe_may_be_joined_with_itself() -> None:
    nodes = [source("s"), step("j", Kind.WJ, "s", "s", routing=Distribution.COMPLEX)]
    assert "Seq(s.out>j#0)" in text(nodes)
    assert "Seq(s.out>j#1)" in text(nodes)


def test_a_merge_of_a_whole_pipe_with_part_of_another_leaves_closed_branches() -> None:
    #  s - v - late sink
    #        \ j - out
    #  o ----/
    nodes = [
        source("s"),
        step("v", Kind.KW, "s", routing=KEY_BY),
        source("o"),
        step("j", Kind.WJ, "v", "o", routing=Distribution.COMPLEX),
        step("out", SNK, "j"),
        step("late", SNK, Input("v", "late")),
    ]
    derived = derive(nodes)
    assert "merge-ind, leaving closed branches j  (v.out>j, o; left: late)" in str(derived)
    assert "[Pipe(Comb(Seq(v.out>j), Seq(D_complex))), Pipe(Seq(late))]" in notation(derived.term)


def test_a_merge_waits_until_its_neighbours_have_merged_and_ended() -> None:
    #  s - a - m2 - k2      m2 is written first and must wait: b and c lie in one branch of s,
    #    \ t - b -/         and c goes on into m1
    #        \ c - m1 - k1
    #        \ d -/
    nodes = [
        source("s"),
        step("a", M, "s"),
        step("t", M, "s"),
        *(step(name, M, "t") for name in "bcd"),
        step("m2", M, "a", "b"),
        step("k2", SNK, "m2"),
        step("m1", M, "c", "d"),
        step("k1", SNK, "m1"),
    ]
    placed = [name for _, name in rules(derive(nodes))]
    assert placed.index("k1") < placed.index("m2")


def test_an_end_that_nobody_reads_does_not_hinder_a_merge() -> None:
    nodes = [source("s"), step("a", M, "s"), step("b", M, "s"), source("o"), step("m", SNK, "a", "o")]
    assert "leaving closed branches" in str(derive(nodes))


def test_independent_pipes_that_stay_apart_are_terms_of_their_own() -> None:
    derived = derive([source("a"), source("b", 2), step("k", SNK, "a")])
    assert [notation(term) for term in derived.terms] == ["Pipe(Seq(a) • Seq(k))", "[Pipe(Seq(b))]^2"]
    assert notation(derived.term) == "[Pipe(Seq(a) • Seq(k)), [Pipe(Seq(b))]^2]"


def test_a_feedback_edge_is_a_note_beside_the_term() -> None:
    nodes = [
        source("s"),
        Node(Operator("p", Kind.P), (Input("s"), Input("q", "hints", feedback=True))),
        step("q", M, "p"),
    ]
    derived = derive(nodes)
    assert notation(derived.term) == "Pipe(Seq(s) • Seq(p) • Seq(q))"
    assert str(derived).endswith("note: q.hints feeds back into p")


def test_replicas_are_counted_as_often_as_they_run() -> None:
    nodes = [source("s", 2), step("a", M, "s", routing=KEY_BY, n=3)]
    assert count(derive(nodes).term) == (2 + 2 + 3, 2, 2 + 3, 2, 1)


CROSSING = [
    source("s1"),
    source("s2"),
    step("a", M, "s1"),
    step("b", M, "s1"),
    step("c", M, "s2"),
    step("d", M, "s2"),
    Node(Operator("m1", M), (Input("a"), Input("c")), where=Where("views.py", 7)),
    step("m2", M, "b", "d"),
]


def test_a_crossing_is_refused_and_the_error_says_what_could_merge() -> None:
    with pytest.raises(GraphError) as caught:
        derive(CROSSING)
    assert str(caught.value) == (
        'no rule merges "a" and "c" into "m1"\n'
        '  where:  step "m1", views.py:7\n'
        '  detail: "a" and "b" are branches of one split; "c" and "d" are branches of one split:'
        " a branch merges with its siblings, or a whole pipe with another\n"
        '  hint:   merge "a" with "b", or "c" with "d", or all of "a", "c", "b" and "d" at once;'
        " or end the others in a sink"
    )


def test_what_the_refusal_of_a_crossing_proposes_can_be_derived() -> None:
    derive([*CROSSING[:6], step("m1", M, "a", "b"), step("m2", M, "c", "d")])
    derive([*CROSSING[:6], step("all", M, "a", "b", "c", "d")])


def test_a_refusal_proposes_a_merge_that_reaches_up_to_the_outermost_split() -> None:
    nodes = [
        source("t"),
        source("o"),
        step("s", M, "t"),
        step("e", M, "t"),
        step("a", M, "s"),
        step("b", M, "s"),
        step("m1", M, "a", "o"),
        step("m2", M, "b", "e"),
    ]
    with pytest.raises(GraphError) as caught:
        derive(nodes)
    assert 'all of "a", "o", "b" and "e" at once' in (caught.value.hint or "")
    derive([*nodes[:6], step("all", M, "a", "o", "b", "e")])


def test_a_refusal_of_many_branches_names_only_the_first_of_them() -> None:
    many = [step(f"a{i}", M, "s1") for i in range(12)]
    waits = step("m2", M, *(f"a{i}" for i in range(1, 12)), "d")
    nodes = [source("s1"), source("s2"), *many, *CROSSING[4:6], step("m1", M, "a0", "c"), waits]
    with pytest.raises(GraphError, match="and 3 more are branches of one split"):
        derive(nodes)


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(GraphError, match="a graph without operators has no building blocks"):
        derive([])


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match='two steps are named "s"') as caught:
        derive([source("s"), source("s")])
    assert caught.value.hint == "give one of them another name="


def test_an_unknown_producer_is_refused_with_the_steps_there_are_nearest_first() -> None:
    with pytest.raises(GraphError, match='"k" reads "viws", which is no step of this graph') as caught:
        derive([source("src"), step("views", M, "src"), step("k", SNK, "viws")])
    assert caught.value.hint == 'steps are "views", "src", "k"'


def test_nothing_follows_a_sink() -> None:
    with pytest.raises(GraphError, match='nothing can follow the sink "k"') as caught:
        derive([source("s"), step("k", SNK, "s"), step("m", M, "k")])
    assert caught.value.hint == 'attach "m" to the step before "k"'


def test_a_source_reads_nothing() -> None:
    with pytest.raises(GraphError, match='the source "t" reads "s", and a source reads nothing'):
        derive([source("s"), step("t", Kind.SRC, "s")])


def test_an_operator_that_reads_rows_needs_a_distribution() -> None:
    with pytest.raises(GraphError, match='"m" reads rows, and has no distribution'):
        derive([source("s"), step("m", M, "s", routing=Distribution.NONE)])


def test_a_ring_is_refused_unless_it_runs_through_a_control_port() -> None:
    nodes = [source("s"), step("a", M, "s", "b"), step("b", M, "a"), step("k", SNK, "b")]
    with pytest.raises(GraphError, match='"a" waits for its own rows') as caught:
        derive(nodes)
    assert caught.value.detail == 'in the ring, or behind it: "a", "b", "k"'
    assert "control=[pipe]" in (caught.value.hint or "")
