"""Figure 6: OutCard, put-seed and LastOP, on a seed and on layers around it."""

from __future__ import annotations

from penstock.blocks import (
    Distribution,
    Function,
    Kind,
    Matryoshka,
    Operator,
    Seq,
    Splitting,
    combine_with_last,
    create,
    out_card,
    pipe_with_last,
    put_seed,
)
from tests.support.block_grammar import last_op

A = create(Operator("a", Kind.SRC, 2))
B = create(Operator("b", Kind.F, 3))
C = create(Operator("c", Kind.SNK))


def test_out_card_is_the_number_of_pipes_in_the_seed() -> None:
    assert out_card(A) == 2
    assert out_card(put_seed(A, B)) == 3


def test_put_seed_around_a_seed_makes_an_all_to_all() -> None:
    assert repr(put_seed(A, B).term()) == "A2A([Pipe(Seq(a))]^2, [Pipe(Seq(b))]^3)"


def test_put_seed_in_a_nested_one_goes_to_the_innermost_place() -> None:
    nested = put_seed(put_seed(A, B), C)
    assert repr(nested.term()) == "A2A([Pipe(Seq(a))]^2, A2A([Pipe(Seq(b))]^3, [Pipe(Seq(c))]))"


def test_last_op_is_the_kind_at_the_end_of_the_seed() -> None:
    assert last_op(pipe_with_last(A, Seq(Function("m", Kind.M)))) is Kind.M


def test_last_op_of_a_combiner_is_its_second_block() -> None:
    assert last_op(combine_with_last(A, Seq(Function("m", Kind.M)))) is Kind.M


def test_last_op_of_a_nested_one_is_that_of_its_seed() -> None:
    assert last_op(put_seed(put_seed(A, B), C)) is Kind.SNK


def test_last_op_passes_over_distributions_and_splitting_functions() -> None:
    filtered = combine_with_last(B, Seq(Function("parity", Splitting.FUNCTION)))
    assert last_op(pipe_with_last(filtered, Seq(Function("x", Distribution.KEY_BY)))) is Kind.F
    central = Matryoshka(Seq(Function("x", Distribution.KEY_BY)), 1)
    assert last_op(put_seed(B, central)) is Kind.F
    assert last_op(central) is None


def test_an_open_matryoshka_prints_as_its_term() -> None:
    assert repr(C) == "Matryoshka(Pipe(Seq(c)))"
