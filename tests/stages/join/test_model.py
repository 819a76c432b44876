"""The model of layouts, against values computed by hand from the paper's expressions."""

from __future__ import annotations

import pytest

from penstock.stages.join.model import JoinLoad, list_layouts

PAPER = JoinLoad.of_streams((2500, 2500), (300, 300), comparison=2e-9, hit_rate=3.6e-6, cell_delay=0)


def test_the_bandwidth_that_there_is_follows_from_rates_and_windows() -> None:
    # (4): 2 x 2100 x 2100 x 300 x 3.6e-6
    load = JoinLoad.of_streams((2100, 2100), (300, 300), hit_rate=3.6e-6)
    assert load.max_bandwidth == pytest.approx(9525.6)


def test_the_bandwidth_that_is_offered_grows_with_the_cells_up_to_what_there_is() -> None:
    # (6): 2 / 1e-8 s x 3.6e-6
    load = JoinLoad.of_streams((6000, 6000), (300, 300), comparison=1e-8, hit_rate=3.6e-6)
    assert load.bandwidth((1, 2)) == pytest.approx(720)
    assert load.bandwidth((2, 1)) == load.bandwidth((1, 2))
    assert load.bandwidth((4, 4)) / load.bandwidth((1, 1)) == pytest.approx(16)  # (5)
    # 2 x 6000 x 6000 x 300 = 2.16e10 comparisons a second, at 1e8 a cell
    assert load.n_needed == 216
    assert load.bandwidth((15, 15)) == load.max_bandwidth == pytest.approx(77760)


@pytest.mark.parametrize(
    ("layout", "milliseconds"),
    # (9): 2500 x 2e-9 x 300 x (m + n) / 4mn
    [((1, 1), 0.75), ((1, 2), 0.5625), ((2, 2), 0.375), ((4, 4), 0.1875), ((1, 16), 0.3984375)],
)
def test_the_latency_of_equal_streams(layout: tuple[int, int], milliseconds: float) -> None:
    assert PAPER.latency(layout) * 1e3 == pytest.approx(milliseconds)


def test_a_square_is_best_for_equal_streams() -> None:
    same = [layout for layout in list_layouts(16) if layout[0] * layout[1] == 16]
    assert min(same, key=PAPER.latency) == (4, 4)
    assert PAPER.choose_layout(16) == (4, 4)


def test_a_rectangle_is_best_for_unequal_streams() -> None:
    # (7, 8): left rows meet 3000 x 300 right rows in n parts, right rows 1000 x 300 left rows in m.
    load = JoinLoad.of_streams((1000, 3000), (300, 300), comparison=2e-9, cell_delay=0)
    assert load.latency((3, 5)) == pytest.approx((900_000 * 2e-9 / 10 + 300_000 * 2e-9 / 6) / 2)
    assert load.latency((3, 5)) < load.latency((4, 4))
    assert load.choose_layout(15) == (2, 7)


def test_a_hop_delays_the_rows_that_pass_many_cells() -> None:
    # On average a left row passes (n - 1) / 2 cells before the one that has its partner.
    load = JoinLoad.of_streams((100, 100), (10, 10), comparison=1e-9, cell_delay=1e-3)
    assert load.latency((1, 5)) == pytest.approx((1000e-9 / 10 + 2e-3 + 1000e-9 / 2) / 2)
    assert load.choose_layout(16) == (1, 1)


def test_one_cell_is_best_where_an_index_serves_the_join() -> None:
    load = JoinLoad.of_streams((2500, 2500), (300, 300), probe=5e-6)
    assert load.n_needed == 1
    assert load.choose_layout(64) == (1, 1)
    assert load.latency((1, 1)) == pytest.approx(5e-6)


def test_a_load_that_no_layout_carries_gets_the_most_cells() -> None:
    load = JoinLoad.of_streams((6000, 6000), (300, 300), comparison=1e-8)
    m, n = load.choose_layout(4)
    assert m * n == 4
    assert "needs 216 cells" in load.describe((m, n))


def test_a_layout_is_changed_only_for_a_better_one() -> None:
    assert PAPER.is_worth((1, 1), (2, 2))
    assert not PAPER.is_worth((2, 2), (2, 2))
    assert not PAPER.is_worth((1, 16), (1, 15))
    busy = JoinLoad.of_streams((6000, 6000), (300, 300), comparison=1e-9, cell_delay=1)
    assert busy.is_worth((1, 1), (2, 2)), "one that does not keep up is left for more cells"


def test_nothing_is_predicted_of_nothing() -> None:
    assert JoinLoad((0, 0), (0, 0)).latency((2, 2)) == 0
