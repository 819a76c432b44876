"""Create, add and chain, rule by rule, and the three ways to place a distribution."""

from __future__ import annotations

import pytest

from penstock.blocks import Composition, Distribution, Kind, Matryoshka, Operator, add, chain, create
from penstock.errors import GraphError

SRC = create(Operator("src", Kind.SRC, 2, Distribution.NONE))
MAP = Operator("map", Kind.M, 2)
KEYED = Operator("win", Kind.KW, 3, Distribution.KEY_BY)


def text(m: Matryoshka) -> str:
    return repr(m.term())


def test_create_makes_a_pipe_of_one_block_per_replica() -> None:
    assert text(SRC) == "[Pipe(Seq(src))]^2"


def test_add_direct_appends_to_the_pipes_when_forward_and_of_equal_degree() -> None:
    assert text(add(SRC, MAP)) == "[Pipe(Seq(src) • Seq(map))]^2"


def test_add_shuffle_puts_a_new_seed_behind_a_distribution() -> None:
    assert text(add(SRC, KEYED)) == "A2A([Pipe(Comb(Seq(src), Seq(D_keyby)))]^2, [Pipe(Seq(win))]^3)"


def test_add_shuffles_a_forward_operator_of_another_degree() -> None:
    three = Operator("map", Kind.M, 3)
    assert text(add(SRC, three)) == "A2A([Pipe(Comb(Seq(src), Seq(D_forward)))]^2, [Pipe(Seq(map))]^3)"


@pytest.mark.parametrize("routing", [Distribution.KEY_BY, Distribution.BROADCAST, Distribution.REBALANCE])
def test_add_shuffles_what_is_not_forward_even_at_equal_degree(routing: Distribution) -> None:
    keyed = Operator("map", Kind.M, 2, routing)
    assert text(add(SRC, keyed)) == f"A2A([Pipe(Comb(Seq(src), Seq(D_{routing})))]^2, [Pipe(Seq(map))]^2)"


def test_chain_fuses_when_forward_and_of_equal_degree() -> None:
    assert text(chain(SRC, MAP)) == "[Pipe(Comb(Seq(src), Seq(map)))]^2"


def test_chain_adds_where_the_rule_does_not_allow_it() -> None:
    assert text(chain(SRC, KEYED)) == text(add(SRC, KEYED))


@pytest.mark.parametrize("kind", [Kind.A, Kind.WJ, Kind.P])
def test_accumulators_joins_and_processes_are_never_fused(kind: Kind) -> None:
    assert text(chain(SRC, Operator("own", kind, 2))) == "[Pipe(Seq(src) • Seq(own))]^2"


def test_a_sink_can_be_chained() -> None:
    assert text(chain(SRC, Operator("out", Kind.SNK, 2))) == "[Pipe(Comb(Seq(src), Seq(out)))]^2"


@pytest.mark.parametrize(
    ("composition", "expected"),
    [
        ("combined", "A2A([Pipe(Comb(Seq(src), Seq(D_keyby)))]^2, [Pipe(Seq(win))]^3)"),
        ("dedicated", "A2A([Pipe(Seq(src) • Seq(D_keyby))]^2, [Pipe(Seq(win))]^3)"),
        ("centralised", "A2A([Pipe(Seq(src))]^2, A2A([Pipe(Seq(D_keyby))], [Pipe(Seq(win))]^3))"),
    ],
)
def test_a_distribution_is_fused_or_dedicated_or_central(composition: Composition, expected: str) -> None:
    assert text(add(SRC, KEYED, composition=composition)) == expected
    assert text(chain(SRC, KEYED, composition=composition)) == expected


@pytest.mark.parametrize("grow", [add, chain])
@pytest.mark.parametrize("op", [MAP, KEYED])
def test_nothing_follows_a_sink(grow: type, op: Operator) -> None:
    closed = add(SRC, Operator("out", Kind.SNK, 2))
    with pytest.raises(GraphError, match='nothing can follow the sink "out"') as caught:
        grow(closed, op)
    assert caught.value.step == op.name
    assert caught.value.hint == f'attach "{op.name}" to the step before "out"'


def test_an_operator_has_at_least_one_replica() -> None:
    with pytest.raises(GraphError, match='"map" has 0 replicas') as caught:
        Operator("map", Kind.M, 0)
    assert caught.value.hint == "use parallelism=1 or more"
