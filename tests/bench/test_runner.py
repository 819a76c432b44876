"""The runner times what it should, checks every answer, and leaves the interpreter as it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench import (
    BenchError,
    Case,
    Cell,
    Claim,
    Progress,
    Way,
    Workload,
    WrongAnswer,
    load_result,
    measure,
    to_json,
)
from bench.result import Figures, evaluate_claim
from bench.runner import shuffle_tasks
from bench.text import format_verdict, list_facts
from tests.support.sort_workload import ScriptedClock, build_sorting


def build_counting(*ways: Way) -> Workload:
    return Workload("counting", "count", (Case("three", lambda seed: [1, 2, 3]),), ways, oracle=len)


def build_noting(name: str, note: Callable[[list[int]], None]) -> Way:
    """Build a way that counts rightly and calls `note`."""

    def run(data: list[int]) -> int:
        note(data)
        return len(data)

    return Way(name, run)


def test_each_way_gets_the_time_that_passed_while_it_ran() -> None:
    clock = ScriptedClock()
    result = measure(build_sorting(clock), rounds=3, warm_up=1, clock=clock)
    assert {one.cell: one.samples_ns for one in result.figures} == {
        Cell("few", "built-in"): (100, 100, 100),
        Cell("few", "insertion"): (300, 300, 300),
        Cell("many", "built-in"): (1_000, 1_000, 1_000),
        Cell("many", "insertion"): (3_000, 3_000, 3_000),
    }


def test_warm_up_rounds_are_kept_apart_and_checked_too() -> None:
    clock = ScriptedClock()
    first = measure(build_sorting(clock), rounds=3, warm_up=2, clock=clock).figures[0]
    assert (first.warm_up_ns, first.checks) == ((100, 100), 5)


def test_ways_are_interleaved_and_each_round_starts_one_later() -> None:
    seen: list[str] = []

    def way(name: str) -> Way:
        return build_noting(name, lambda data: seen.append(name))

    measure(build_counting(way("a"), way("b"), way("c")), rounds=4, warm_up=0)
    rounds = ["".join(seen[start : start + 3]) for start in range(0, 12, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 1


def test_a_way_is_only_tried_on_the_cases_it_names() -> None:
    few, many = (Case(name, lambda seed: [1, 2, 3]) for name in ("few", "many"))
    ways = (Way("length", len), Way("size", len, only=("many",)))
    result = measure(Workload("counting", "count", (few, many), ways, oracle=len), rounds=1, warm_up=0)
    assert [one.cell for one in result.figures] == [("few", "length"), ("many", "length"), ("many", "size")]


def test_cases_are_interleaved_too_so_that_a_claim_across_them_sees_one_machine() -> None:
    seen: list[Progress] = []
    clock = ScriptedClock()
    measure(build_sorting(clock), rounds=2, warm_up=0, clock=clock, on_progress=seen.append)
    cases = [one.cell.case for one in seen]
    assert sorted(cases[:4]) == sorted(cases[4:]) == ["few", "few", "many", "many"]


def test_shuffled_tasks_keep_every_way_exactly_once_and_follows_each_with_any_other() -> None:
    ways = [Way(name, len) for name in "abcd"]
    pairs = set()
    for round_number in range(30):
        order = [way.name for way in shuffle_tasks(ways, round_number)]
        assert sorted(order) == list("abcd")
        pairs |= set(pairwise(order))
    assert len(pairs) == 12


def test_setup_runs_before_every_run_and_outside_the_clock() -> None:
    clock = ScriptedClock()
    copies: list[list[int]] = []

    def copy(data: list[int]) -> list[int]:
        clock.pass_by(1_000_000)
        copies.append(list(data))
        return copies[-1]

    def empty(data: list[int]) -> int:
        n = len(data)
        data.clear()
        clock.pass_by(7)
        return n

    result = measure(build_counting(Way("empty", empty, setup=copy)), rounds=3, warm_up=0, clock=clock)
    assert result.figures[0].samples_ns == (7, 7, 7)
    assert copies == [[], [], []]


def test_a_wrong_answer_stops_the_measurement_and_names_the_way() -> None:
    answers = iter([3, 3, 4])
    with pytest.raises(WrongAnswer) as caught:
        measure(
            build_counting(Way("right", len), Way("tired", lambda data: next(answers))), rounds=5, warm_up=0
        )
    assert caught.value.fact == 'way "tired" gave a wrong answer on case "three" of "counting"'
    assert caught.value.detail == "expected 3, got 4"


def test_a_long_wrong_answer_is_shown_shortened() -> None:
    with pytest.raises(WrongAnswer) as caught:
        measure(build_counting(Way("long", lambda data: "x" * 5_000)), rounds=1, warm_up=0)
    assert len(caught.value.detail or "") < 300


def test_a_way_that_raises_is_named_with_its_case_and_the_cause() -> None:
    def broken(data: list[int]) -> int:
        raise ValueError("no such luck")

    with pytest.raises(BenchError) as caught:
        measure(build_counting(Way("broken", broken)), rounds=1)
    assert caught.value.fact == 'way "broken" failed on case "three" of workload "counting"'
    assert caught.value.detail == "ValueError: no such luck"


def test_a_way_with_its_own_oracle_is_held_to_that_one() -> None:
    result = measure(build_counting(Way("length", len), Way("total", sum, oracle=lambda data: 6)), rounds=1)
    assert [one.cell.way for one in result.figures] == ["length", "total"]


@pytest.mark.parametrize("stays_on", [True, False])
def test_the_collector_is_off_while_timing_unless_the_workload_wants_it_on(stays_on: bool) -> None:
    seen: list[bool] = []
    way = build_noting("look", lambda data: seen.append(gc.isenabled()))
    measure(replace(build_counting(way), collector=stays_on), rounds=2, warm_up=0)
    assert (seen, gc.isenabled()) == ([stays_on, stays_on], True)


def test_the_collector_comes_back_after_a_failing_way() -> None:
    with pytest.raises(BenchError):
        measure(build_counting(Way("broken", lambda data: 1 / 0)), rounds=1)
    assert gc.isenabled()


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data() -> None:
    seen: list[int] = []
    case = Case("seeded", lambda seed: [seed])
    way = build_noting("note", lambda data: seen.append(data[0]))
    for seed in (5, 5, 6):
        measure(replace(build_counting(way), cases=(case,)), rounds=1, warm_up=0, seed=seed)
    assert seen == [5, 5, 6]


def test_progress_counts_every_run_of_every_case() -> None:
    seen: list[Progress] = []
    clock = ScriptedClock()
    measure(build_sorting(clock), rounds=2, warm_up=1, clock=clock, on_progress=seen.append)
    assert [one.done for one in seen] == list(range(12))
    assert {one.total for one in seen} == {12}
    assert {one.cell for one in seen} == {
        Cell(case, way) for case in ("few", "many") for way in ("built-in", "insertion")
    }


def test_quick_and_full_differ_in_rounds() -> None:
    quick = measure(build_counting(Way("length", len)), size="quick")
    full = measure(build_counting(Way("length", len)), size="full")
    assert (quick.rounds, full.rounds) == (5, 15)


@pytest.mark.parametrize(("rounds", "warm_up"), [(0, 1), (3, -1)])
def test_rounds_that_measure_nothing_are_refused(rounds: int, warm_up: int) -> None:
    with pytest.raises(BenchError, match=f"{rounds} rounds after {warm_up} warm-up rounds measure nothing"):
        measure(build_counting(Way("length", len)), rounds=rounds, warm_up=warm_up)


@pytest.mark.parametrize(("factor", "held"), [(3, True), (5, True), (6, False)])
def test_a_ratio_claim_is_held_against_the_medians(factor: int, held: bool) -> None:
    clock = ScriptedClock()
    (verdict,) = measure(build_sorting(clock, factor=factor), rounds=3, clock=clock).verdicts
    assert (verdict.measured, verdict.held) == (factor, held)


def test_a_claim_without_a_second_cell_is_a_limit_in_seconds() -> None:
    clock = ScriptedClock()
    claim = Claim("many numbers in under 2 us", Cell("many", "insertion"), at_most=2e-6)
    (verdict,) = measure(replace(build_sorting(clock), claims=(claim,)), rounds=3, clock=clock).verdicts
    assert (verdict.measured, verdict.held) == (3e-6, False)


@pytest.mark.parametrize(("at_most", "held"), [(0.5, True), (0.4, False)])
def test_a_claim_about_a_note_compares_what_ways_note_and_not_their_times(at_most: float, held: bool) -> None:
    def build_way(name: str, n: int) -> Way:
        return Way(name, len, notes=lambda answer: {"kept (bytes)": n * answer})

    one, other = Cell("few", "one"), Cell("few", "other")
    claim = Claim("one keeps less", one, at_most, over=other, note="kept (bytes)")
    workload = Workload(
        "notes",
        "what ways keep",
        (Case("few", lambda seed: [1, 2]),),
        (build_way("one", 4), build_way("other", 8)),
        oracle=len,
        claims=(claim,),
    )
    (verdict,) = measure(workload, rounds=3).verdicts
    assert (verdict.measured, verdict.held) == (0.5, held)


@pytest.mark.parametrize(
    ("errors", "measured", "held"), [((0.2, -0.2, -0.01), 0.01, True), ((-0.2,) * 3, 0.2, False)]
)
def test_errors_that_go_both_ways_are_held_against_their_median(
    errors: tuple[float, ...], measured: float, held: bool
) -> None:
    cell = Cell("few", "one")
    figures = Figures(cell, {}, (), (1, 1, 1), 3, {"error": errors})
    claim = Claim("the model is near", cell, 0.05, note="error", both_sides=True)
    verdict = evaluate_claim(claim, {cell: figures})
    assert (verdict.measured, verdict.held) == (measured, held)
    assert verdict.low < 0


def test_groups_follow_each_other_and_the_data_of_one_is_gone_before_the_next_is_made() -> None:
    alive: list[str] = []

    class Data:
        def __init__(self, name: str) -> None:
            self.name = name
            alive.append(name)

        def __del__(self) -> None:
            alive.remove(self.name)

    seen: list[tuple[str, list[str]]] = []

    def look(data: Data) -> int:
        seen.append((data.name, sorted(alive)))
        return 0

    def case(name: str) -> Case:
        return Case(name, lambda seed: Data(name), group=name[0])

    cases = (case("a1"), case("a2"), case("b1"))
    workload = Workload("groups", "look", cases, (Way("look", look),), oracle=lambda data: 0)
    result = measure(workload, rounds=1, warm_up=1)
    both = ["a1", "a2"]
    assert sorted(seen[:4]) == [("a1", both), ("a1", both), ("a2", both), ("a2", both)]
    assert seen[4:] == [("b1", ["b1"]), ("b1", ["b1"])]
    assert [one.cell.case for one in result.figures] == ["a1", "a2", "b1"]


def test_notes_of_timed_rounds_are_kept_beside_the_times() -> None:
    lengths = iter([1.0, 2.0, 3.0])
    way = Way("length", len, notes=lambda answer: {"widths": next(lengths)})
    (one,) = measure(build_counting(way), rounds=2, warm_up=1).figures
    assert one.notes == {"widths": (2.0, 3.0)}
    widths = one.of("widths")
    assert widths is not None
    assert widths.median == 2.5
    assert one.of("heights") is None


def test_work_that_only_the_answer_knows_is_counted_where_the_way_gives_that_answer() -> None:
    ways = (Way("length", len), Way("total", sum, oracle=lambda data: 6))
    workload = replace(build_counting(*ways), counts=lambda expected: {"results": expected})
    assert [one.units for one in measure(workload, rounds=1).figures] == [{"results": 3}, {}]


def test_a_workload_may_have_rounds_of_its_own() -> None:
    workload = replace(build_counting(Way("length", len)), rounds=2)
    assert (measure(workload).rounds, measure(workload, rounds=3).rounds) == (2, 3)


def test_a_verdict_has_the_quartiles_of_its_rounds() -> None:
    clock = ScriptedClock()
    (verdict,) = measure(build_sorting(clock), rounds=3, clock=clock).verdicts
    assert (verdict.low, verdict.measured, verdict.high) == (3, 3, 3)


def build_narrow(clock: ScriptedClock, durations: list[int]) -> Workload:
    """Build two ways: one takes 10 ns, the other the next of `durations`."""
    rounds = iter(durations)

    def even(data: list[int]) -> int:
        clock.pass_by(10)
        return len(data)

    def uneven(data: list[int]) -> int:
        clock.pass_by(next(rounds))
        return len(data)

    says = "uneven costs at most 1.1x"
    claim = Claim(says, Cell("three", "uneven"), 1.1, Cell("three", "even"), narrow=True)
    return replace(build_counting(Way("even", even), Way("uneven", uneven)), claims=(claim,))


def test_a_narrow_claim_has_more_rounds_and_is_held_against_the_first_quartiles() -> None:
    clock = ScriptedClock()
    # Disturbed in three rounds of five, which the median would tell as a cost.
    result = measure(build_narrow(clock, [11, 30, 11, 30, 30] * 9), size="quick", clock=clock)
    assert [len(one.samples_ns) for one in result.figures] == [41, 41]
    assert result.rounds == 5
    (verdict,) = result.verdicts
    assert (verdict.measured, verdict.held) == (1.1, True)
    assert "measured 1.10x at the first quartile" in format_verdict(verdict)
    assert (
        "method",
        "1 warm-up and 5 timed rounds, ways interleaved; 41 rounds of what narrow claims compare",
    ) in (list_facts(result))


def test_what_no_narrow_claim_compares_has_no_more_rounds() -> None:
    clock = ScriptedClock()
    workload = build_narrow(clock, [11] * 42)
    broad = Claim("uneven is not slow", Cell("three", "uneven"), 99, Cell("three", "beside"))

    def slow(data: list[int]) -> int:
        clock.pass_by(22)
        return len(data)

    beside = replace(workload, ways=(Way("beside", slow), *workload.ways), claims=(*workload.claims, broad))
    seen: list[Progress] = []
    result = measure(beside, size="quick", clock=clock, on_progress=seen.append)
    assert [len(one.samples_ns) for one in result.figures] == [5, 41, 41]
    # What both have in the same rounds is compared.
    assert [verdict.measured for verdict in result.verdicts] == [1.1, 0.5]
    shares = [result.ratio(one) for one in result.figures]
    assert [round(one.median, 2) for one in shares if one is not None] == [1.0, 0.45, 0.5]
    assert (seen[-1].done + 1, seen[-1].total) == (len(seen), 42 + 42 + 6)


def test_what_narrow_claims_compare_is_rebuilt_every_few_rounds() -> None:
    clock, events = ScriptedClock(), list[str]()
    workload = build_narrow(clock, [11] * 42)
    (case,) = workload.cases

    def make(seed: int) -> object:
        events.append("made")
        return case.make(seed)

    cases = (replace(case, make=make), Case("apart", make=case.make, group="apart"))
    ways = tuple(replace(way, only=("three",)) for way in workload.ways)
    watched = replace(
        workload,
        cases=cases,
        ways=(*ways, Way("beside", len, only=("apart",))),
        forget=lambda: events.append("forgotten"),
    )
    result = measure(watched, size="quick", clock=clock)
    assert events == ["made", *["forgotten", "made"] * 9]
    assert [len(one.samples_ns) for one in result.figures] == [41, 41, 5]


def test_rounds_that_were_asked_for_are_kept_where_a_claim_is_narrow() -> None:
    clock = ScriptedClock()
    result = measure(build_narrow(clock, [12] * 3), rounds=3, warm_up=0, clock=clock)
    assert [len(one.samples_ns) for one in result.figures] == [3, 3]
    assert not result.verdicts[0].held


def test_a_narrow_claim_that_was_stored_is_still_narrow(tmp_path: Path) -> None:
    clock = ScriptedClock()
    result = measure(build_narrow(clock, [11] * 3), rounds=3, warm_up=0, clock=clock)
    (tmp_path / "told.json").write_text(to_json(result))
    assert load_result(tmp_path / "told.json").verdicts == result.verdicts
