"""Text that is split at one character: the same words as Python and Arrow find, at both speeds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.kernels.split import spread_lists
from penstock.stages import policy
from penstock.stages.map import split_text
from tests.naive.split import split_texts, spread

texts = st.lists(st.text(alphabet="ab ,é€", max_size=12) | st.just("longer than eight bytes"), max_size=12)


@given(texts, st.sampled_from(" ,a"), st.integers(0, 3), st.booleans())
def test_words_are_those_between_separators(
    lines: list[str], mark: str, skipped: int, compiled: bool
) -> None:
    column = pa.array(["skipped, too"] * skipped + lines, pa.string()).slice(skipped)
    firsts, words = split_text(column, mark, policy.JitPolicy(0 if compiled else 1 << 40))
    assert (firsts.tolist(), words.to_pylist()) == split_texts(lines, mark)
    words.validate(full=True)
    assert words.to_pylist() == pc.list_flatten(pc.split_pattern(column, mark)).to_pylist()


@given(st.lists(st.integers(0, 5), max_size=10), st.booleans())
def test_every_element_knows_its_list_and_its_place_there(sizes: list[int], compiled: bool) -> None:
    firsts = np.append(0, np.cumsum(sizes)).astype(np.int32)
    parents, index = np.empty((2, int(firsts[-1])), np.int64)
    spread_lists.version(compiled)(firsts, parents, index)
    assert (parents.tolist(), index.tolist()) == spread(firsts.tolist())


@pytest.mark.parametrize("separator", [" ", ", "])
@pytest.mark.parametrize("name", ["word", "line"])
def test_a_row_per_word_has_the_other_columns_of_its_line(separator: str, name: str) -> None:
    lines = [f"a{separator}b{separator}{separator}c", None, "", f"{separator}d", "é"] * 40
    rows = [{"n": n, "line": line} for n, line in enumerate(lines)]
    tables = []
    for engine in ("reference", "local"):
        graph = ps.PipeGraph("words")
        source = graph.source(ps.read.rows(rows, schema={"n": int, "line": str}))
        tables.append(source.flat_map(**{name: col("line").str.split(separator)}).collect(engine=engine))
    assert tables[1].to_pylist() == tables[0].to_pylist()
    assert tables[0].num_rows == 40 * (4 + 0 + 1 + 2 + 1)
