"""How steps become the nodes of the algebra: splits fold into what feeds them, sides are branches by tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import penstock as ps
from penstock import blocks, col
from tests.support.block_grammar import is_multipipe
from tests.support.trades import trades

PAID = col("paid")


def term(pipe: ps.MultiPipe) -> str:
    return blocks.notation(pipe.graph.blocks())


def test_fused_steps_are_one_combination() -> None:
    pipe = trades()
    pipe.filter(PAID).sink(ps.write.memory())
    assert term(pipe) == "Pipe(Comb(Comb(Seq(trades), Seq(filter)), Seq(sink)))"


def test_a_split_is_the_function_of_the_step_before_it() -> None:
    pipe = trades()
    for name, branch in zip(("a", "b"), pipe.split(col("n"), 2, name="parity"), strict=True):
        branch.sink(ps.write.memory(), name=name)
    assert term(pipe) == (
        "A2A([Pipe(Comb(Seq(trades), Comb◀(Seq(S_parity), {Seq(D_forward), Seq(D_forward)})))], "
        "[Pipe(Seq(a)), Pipe(Seq(b))])"
    )


def test_two_splits_of_one_pipe_part_it_together() -> None:
    pipe = trades()
    for split in ("one", "two"):
        for n, branch in enumerate(pipe.split(col("n"), 2, name=split)):
            branch.sink(ps.write.memory(), name=f"{split}-{n}")
    assert "S_one+two" in term(pipe)
    assert blocks.count(pipe.graph.blocks()).all_to_alls == 1


def test_a_pipe_used_twice_is_copied() -> None:
    pipe = trades()
    for name in ("a", "b"):
        pipe.sink(ps.write.memory(), name=name)
    assert "S_copy" in term(pipe)


def test_late_rows_are_a_branch_by_tag() -> None:
    pipe = trades()
    views = pipe.window(ps.tumbling("1 s"), name="views").aggregate(n=ps.count())
    views.sink(ps.write.memory(), name="results")
    views.late.sink(ps.write.memory(), name="late")
    assert "S_tag" in term(pipe)


def test_a_loop_is_a_note_beside_the_term() -> None:
    class Limiter(ps.ProcessOperator):
        outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}
        control = ("limit",)

        async def process(self, ctx: ps.Context) -> None:
            raise AssertionError("never run here")

    pipe = trades()
    limited = pipe.process(Limiter(), name="limiter")
    limited.filter(col("n") > 9, name="over").feed_back("limiter", "limit")
    limited.sink(ps.write.memory())
    derived = pipe.graph.derivation()
    assert [str(note) for note in derived.feedback] == ["over.out feeds back into limiter"]
    assert is_multipipe(derived.term)


def test_a_control_input_from_above_is_one_more_input() -> None:
    class Limiter(ps.ProcessOperator):
        outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}
        control = ("limit",)

        async def process(self, ctx: ps.Context) -> None:
            raise AssertionError("never run here")

    pipe = trades()
    limits = trades(pipe.graph, name="limits")
    (limited,) = pipe.graph.operator(Limiter(), inputs=[pipe], control=[limits], name="limiter")
    limited.sink(ps.write.memory())
    derived = pipe.graph.derivation()
    assert derived.feedback == ()
    assert [step.rule for step in derived.steps if step.operator == "limiter"] == ["merge-ind"]


def test_a_split_of_late_rows_parts_only_those() -> None:
    pipe = trades()
    views = pipe.window(ps.tumbling("1 s"), name="views").aggregate(n=ps.count())
    views.sink(ps.write.memory(), name="results")
    for n, branch in enumerate(views.late.split(col("n"), 2, name="halves")):
        branch.sink(ps.write.memory(), name=f"late-{n}")
    derived = pipe.graph.derivation()
    assert is_multipipe(derived.term)
    assert [step.detail for step in derived.steps if step.rule == "split"] == [
        "S_halves to results, late-0, late-1"
    ]


def test_an_elastic_step_counts_with_its_least_degree() -> None:
    pipe = trades()
    pipe.filter(PAID, parallelism=(2, 8)).sink(ps.write.memory(), parallelism=(2, 8))
    assert blocks.count(pipe.graph.blocks()).seqs == 1 + 1 + 2 * 2
