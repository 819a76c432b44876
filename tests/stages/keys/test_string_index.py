"""Strings that are looked up where they are: against a dict, at both speeds of the loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.kernels.loops import Loop
from penstock.stages import policy
from penstock.stages.keys import index as key_index
from penstock.stages.keys import slots as key_slots
from penstock.stages.keys.index import StringKeys
from penstock.stages.rows.batch import ColumnView, Selection

ALIKE = "https://x/{}/index.html"
STRINGS = st.one_of(
    st.text(max_size=20),
    st.text("aß語", max_size=40),
    st.integers(0, 99).map(lambda number: ALIKE.format(f"{number:02}")),
    st.sampled_from(["", "a", "12345678", "123456789", "1234567\0", "1234567"]),
)


class PlainLoop:
    """A loop that says of itself that it is compiled, and runs as it was written."""

    def __init__(self, loop: Loop) -> None:
        self.compiled = loop.plain


@pytest.fixture(params=["plain", "compiled"])
def _speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SIZES", policy.SizePolicy(hash_batch_rows=0))
    if request.param == "plain":
        for module, name in (
            (key_index, "assign_strings"),
            (key_index, "write_strings"),
            (key_slots, "insert_slots"),
            (key_slots, "remove_slots"),
        ):
            monkeypatch.setattr(module, name, PlainLoop(getattr(module, name)))


def selection_of(places: npt.NDArray[np.int64]) -> Selection:
    return Selection(len(places), lambda: places)


def slots_of(strings: Sequence[object], known: dict[object, int]) -> list[int]:
    return [known.setdefault(string, len(known)) for string in strings]


def slice_of(strings: Sequence[str], type_: pa.DataType, before: int, after: int) -> pa.Array:
    """The strings as a slice of a longer column, so that they begin anywhere in its buffers."""
    whole = [*["xyz"[: place % 4] for place in range(before)], *strings, *["end"] * after]
    encoded = [string.encode() for string in whole] if pa.types.is_binary(type_) else whole
    return pa.array(encoded, type_).slice(before, len(strings))


@pytest.mark.slow
@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(STRINGS, max_size=30), max_size=3),
    margins=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    seed=st.integers(0, 99),
)
@example(batches=[[ALIKE.format(1), ALIKE.format(2)], [ALIKE.format(3)]], margins=(0, 0), seed=0)
@example(batches=[[""], ["", "a"]], margins=(1, 0), seed=1)
def test_every_string_gets_the_slot_that_a_dict_gives_it(
    type_: pa.DataType, batches: list[list[str]], margins: tuple[int, int], seed: int
) -> None:
    index, known = StringKeys([type_]), dict[object, int]()
    for strings in batches:
        column = slice_of(strings, type_, *margins)
        n = len(strings)
        picks = np.random.default_rng(seed).integers(0, n, 2 * n) if n else np.arange(0)
        selected = ColumnView(column, selection_of(picks))
        assert index.look_up([selected]).tolist() == slots_of([strings[place] for place in picks], known)
        assert index.look_up([ColumnView(column, None)]).tolist() == slots_of(strings, known)
    order = np.arange(len(known))[::-1]
    written = index.columns_of(order)[0].cast(pa.binary()).cast(pa.string())
    assert written.to_pylist() == list(known)[::-1]


@pytest.mark.usefixtures("_speed")
def test_buffers_that_begin_askew_are_read_all_the_same() -> None:
    strings = ["ad-2", "a much longer name", "ad-3", "ad-2", "a much longer name"]
    _, offsets, data = pa.array(strings).buffers()
    askew = pa.py_buffer(b"\0" * 3 + data.to_pybytes()).slice(3)
    column = pa.Array.from_buffers(pa.string(), len(strings), [None, offsets, askew])
    assert StringKeys([pa.string()]).look_up([ColumnView(column, None)]).tolist() == [0, 1, 2, 0, 1]
