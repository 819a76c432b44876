"""Texts looked up where they lie: against a dict, at both speeds of the loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels.compile.loops import Loop
from penstock.stages import table_join
from penstock.stages.keys import index as text_index
from penstock.stages.keys.index import TextIndex
from penstock.stages.rows.batch import ColumnView, Selection
from penstock.stages.table_join import TextLookup

ALIKE = "https://x/{}/index.html"
"""Texts with the same first and last eight bytes, which only all their bytes tell apart."""
WORDS = st.one_of(
    st.text(max_size=20),
    st.text("aß語", max_size=40),
    st.integers(0, 99).map(lambda number: ALIKE.format(f"{number:02}")),
    st.sampled_from(["", "a", "12345678", "123456789", "1234567\0", "1234567"]),
)
TABLES = st.lists(st.none() | WORDS, max_size=30, unique_by=lambda word: (word is None, word))


class Plain:
    """A loop that says of itself that it is compiled, and runs as it was written."""

    def __init__(self, loop: Loop) -> None:
        self.compiled = loop.plain


@pytest.fixture(params=["as written", "compiled"])
def _speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "as written":
        for name in ("enter_texts", "find_texts"):
            monkeypatch.setattr(text_index, name, Plain(getattr(text_index, name)))


def rows_of(table: Sequence[object], wanted: Sequence[object]) -> list[int]:
    """The obvious way."""
    rows = {text: row for row, text in enumerate(table) if text is not None}
    return [rows.get(text, -1) for text in wanted]


def cut_out(texts: Sequence[object], type_: pa.DataType, before: int, after: int) -> pa.Array:
    """The texts as a slice of a longer column, so that they begin anywhere in its buffers."""
    whole = [*["xyz"[: each % 4] for each in range(before)], *texts, *["end"] * after]
    if pa.types.is_binary(type_):
        whole = [text.encode() if isinstance(text, str) else text for text in whole]
    return pa.array(whole, type_).slice(before, len(texts))


@pytest.mark.slow
@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
@settings(deadline=None)
@given(
    table=TABLES,
    others=st.lists(st.none() | WORDS, max_size=30),
    margins=st.tuples(*[st.integers(0, 5)] * 4),
    seed=st.integers(0, 99),
)
@example(table=[ALIKE.format(1), ALIKE.format(2)], others=[ALIKE.format(3)], margins=(0, 0, 0, 0), seed=0)
@example(table=["", None], others=["", None], margins=(0, 0, 1, 0), seed=1)
@example(table=[], others=["a"], margins=(0, 0, 0, 0), seed=0)
def test_every_text_gets_the_row_of_its_equal_in_the_table(
    type_: pa.DataType,
    table: list[str | None],
    others: list[str | None],
    margins: tuple[int, int, int, int],
    seed: int,
) -> None:
    wanted = [*others, *table]
    index = TextIndex(cut_out(table, type_, *margins[:2]))
    column = cut_out(wanted, type_, *margins[2:])
    assert index.find(column).tolist() == rows_of(table, wanted)
    places = np.random.default_rng(seed).integers(0, len(wanted), 2 * len(wanted)) if wanted else np.arange(0)
    assert index.find(column, places).tolist() == rows_of(table, [wanted[place] for place in places])


@pytest.mark.usefixtures("_speed")
def test_texts_that_share_their_ends_are_told_apart_by_what_is_between() -> None:
    table = [ALIKE.format(number) for number in range(10, 60)]
    index = TextIndex(pa.array(table))
    wanted = [ALIKE.format(number) for number in range(99)]
    assert index.find(pa.array(wanted)).tolist() == rows_of(table, wanted)


def test_buffers_that_begin_askew_are_read_all_the_same() -> None:
    table = ["ad-1", "ad-2", "a much longer name"]
    wanted = ["ad-2", "a much longer name", "ad-3", "ad-1"]
    _, offsets, data = pa.array(wanted).buffers()
    askew = [pa.py_buffer(b"\0" * 3 + buffer.to_pybytes()).slice(3) for buffer in (offsets, data)]
    column = pa.Array.from_buffers(pa.string(), len(wanted), [None, *askew])
    assert TextIndex(pa.array(table)).find(column).tolist() == [1, 2, -1, 0]


@pytest.mark.parametrize("large", [False, True])
def test_few_rows_and_many_find_the_same(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(table_join, "is_large", lambda n_rows, so_far: large)
    found = TextLookup(pa.array(["b", None, "a"]))
    column = pa.array(["a", "x", None, "b", "a"])
    assert found.find([column]).tolist() == [2, -1, -1, 0, 2]
    assert found.find_view(ColumnView(column, Selection.from_indices(np.array([3, 1, 0])))).tolist() == [
        0,
        -1,
        2,
    ]


def test_a_lookup_that_has_seen_many_rows_stays_with_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[Any] = []

    def is_large(n_rows: int, so_far: int) -> bool:
        sizes.append((n_rows, so_far))
        return so_far >= 3

    monkeypatch.setattr(table_join, "is_large", is_large)
    found = TextLookup(pa.array(["a"]))
    for _ in range(4):
        assert found.find([pa.array(["a", "b"])]).tolist() == [0, -1]
    assert sizes == [(2, 2), (2, 4)]
