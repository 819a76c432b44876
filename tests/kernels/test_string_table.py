"""The table from texts to slots, as it is written and compiled: both against a dict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.hash_table import assign_strings, write_strings
from penstock.kernels.loops import Loop

Ints = npt.NDArray[np.int64]
Pick = Callable[[Loop], Callable[..., Any]]

N_SLOTS, N_ENTRIES = 24, 32
WORD = (1 << 64) - 1
SPREAD = 0x9E3779B97F4A7C15


def as_written(loop: Loop) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):  # the hash is meant to wrap
            return loop.plain(*arguments)

    return call


def as_compiled(loop: Loop) -> Callable[..., Any]:
    return loop.compiled


class Texts:
    """A table of so many slots and entries, with an arena of so many words."""

    def __init__(
        self, pick: Pick, n_arena: int = 200, n_free: int = N_SLOTS, n_entries: int = N_ENTRIES
    ) -> None:
        self.assign_texts = pick(assign_strings)
        self.shift = 64 - (n_entries - 1).bit_length()
        self.pairs: Ints = np.full(2 * n_entries, -1, dtype=np.int64)
        self.hashes, self.starts = np.zeros((2, n_free), dtype=np.int64)
        self.arena: Ints = np.zeros(n_arena, dtype=np.int64)
        self.stack: Ints = np.arange(n_free - 1, -1, -1)
        self.n_free, self.n_used = n_free, 0

    def assign(self, texts: list[bytes], skipped: int = 0) -> tuple[int, list[int]]:
        """`skipped` bytes of another text stand before the first, so that it begins anywhere in a word."""
        offsets = np.cumsum([skipped, *map(len, texts)]).astype(np.int32)
        data = np.zeros(offsets[-1] + 8, dtype=np.uint8)
        data[: offsets[-1]] = list(b"\xff" * skipped + b"".join(texts))
        slots: Ints = np.full(len(texts), -7, dtype=np.int64)
        stopped, self.n_free, self.n_used = self.assign_texts(
            *(
                offsets,
                data,
                int(offsets[-1]),
                np.empty(0, np.int64),
                0,
                self.pairs,
                self.shift,
                self.hashes,
                self.starts,
            ),
            *(self.arena, self.n_used, self.stack, self.n_free, slots),
        )
        return stopped, slots.tolist()

    def probes(self) -> Ints:
        """Return the number of entries that the search for each text looks at."""
        n_entries = len(self.pairs) // 2
        entries = np.flatnonzero(self.pairs[1::2] >= 0)
        words = self.pairs[::2][entries].view(np.uint64)
        homes = ((words ^ (words >> np.uint64(32))) * np.uint64(SPREAD)) >> np.uint64(self.shift)
        return (entries - homes.astype(np.int64)) % n_entries + 1

    def text(self, slot: int) -> bytes:
        start = self.starts[slot]
        return self.arena[start + 1 :].tobytes()[: self.arena[start]]


def with_one_hash(first: int, other: int) -> tuple[bytes, bytes]:
    """Two texts of sixteen bytes that hash alike: the second words make up for the first ones."""

    def second(word: int) -> int:
        # Words below 2^32 are multiplied as they are: x * SPREAD + first * SPREAD^2 is the same for both.
        mixed = -word * SPREAD & WORD
        return mixed ^ (mixed >> 32)

    texts = [word.to_bytes(8, "little") + second(word).to_bytes(8, "little") for word in (first, other)]
    return texts[0], texts[1]


@pytest.mark.parametrize("pick", [as_written, as_compiled])
def test_texts_with_one_hash_are_two_keys(pick: Pick) -> None:
    table = Texts(pick)
    a, b = with_one_hash(1, 2)
    assert table.assign([a, b, a, b]) == (4, [0, 1, 0, 1])
    assert table.hashes[0] == table.hashes[1]


N_TEXTS = 4096

FAMILIES: dict[str, Callable[[int], bytes]] = {
    "random": lambda n: hashlib.md5(b"%d" % n, usedforsecurity=False).hexdigest().encode(),
    "first bytes": lambda n: b"%08d-the-same-in-all-of-these-texts" % n,
    "last bytes": lambda n: b"the-same-in-all-of-these-texts-%08d" % n,
    "one word in the middle": lambda n: b"https://example.com/shops/articles/%04x/reviews/latest" % n,
    "one bit in the middle": lambda n: (1 << n % 448).to_bytes(56, "little") + bytes(n // 448),
    "two words": lambda n: b"shop-%03d/articles/%03d/reviews" % divmod(n, 64),
    "length": bytes,
    "up to seven bytes": lambda n: b"%d" % n,
    "eight bytes": lambda n: n.to_bytes(8, "little"),
    "upper bytes of eight": lambda n: n.to_bytes(8, "big"),
    "sixteen bytes": lambda n: (n - N_TEXTS // 2).to_bytes(16, "little", signed=True),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_that_differ_in_few_places_only_are_found_by_few_probes(family: str) -> None:
    texts = [FAMILIES[family](n) for n in range(N_TEXTS)]
    n_arena = sum(len(text) // 8 + 2 for text in texts)
    table = Texts(as_compiled, n_arena=n_arena, n_free=N_TEXTS, n_entries=2 * N_TEXTS)
    for _ in range(2):
        assert table.assign(texts) == (N_TEXTS, list(range(N_TEXTS)))
    # Why: a half-full table of random hashes takes 1.5 on average (Knuth, vol. 3, 6.4).
    assert table.probes().mean() < 1.6
    assert table.probes().max() < 32
    assert len(set(table.hashes.tolist())) == N_TEXTS


@pytest.mark.parametrize("pick", [as_written, as_compiled])
def test_zeros_at_the_end_make_another_text(pick: Pick) -> None:
    table = Texts(pick)
    texts = [b"\0" * n for n in (0, 1, 7, 8, 9, 16)]
    assert table.assign(texts + texts, skipped=3) == (12, [0, 1, 2, 3, 4, 5] * 2)
    assert [table.text(slot) for slot in range(6)] == texts


@pytest.mark.parametrize("pick", [as_written, as_compiled])
def test_it_stops_where_no_slot_is_free_or_the_arena_is_full(pick: Pick) -> None:
    assert Texts(pick, n_free=2).assign([b"a", b"b", b"a", b"c", b"a"]) == (3, [0, 1, 0, -7, -7])
    full = Texts(pick, n_arena=5)
    assert full.assign([b"a", b"123456789", b"a", b"", b"x"]) == (3, [0, 1, 0, -7, -7])
    assert (full.n_free, full.n_used) == (22, 5)


TEXT = st.one_of(
    st.sampled_from([b"", b"a", b"12345678", b"123456789", b"\xff" * 17]),
    st.binary(max_size=20),
    st.binary(max_size=2).map(lambda middle: b"the same first, " + middle + b" and the same last"),
)


@pytest.mark.slow
@given(st.lists(TEXT, min_size=1, max_size=12), st.data())
@settings(deadline=None)
def test_texts_have_the_slots_a_dict_gives_them(pool: list[bytes], data: st.DataObject) -> None:
    written, compiled = Texts(as_written), Texts(as_compiled)
    known: dict[bytes, int] = {}
    for _ in range(2):
        texts = data.draw(st.lists(st.sampled_from(pool), max_size=12))
        skipped = data.draw(st.integers(0, 9))
        expected = [known.setdefault(text, len(known)) for text in texts]
        assert written.assign(texts, skipped) == (len(texts), expected)
        assert compiled.assign(texts, skipped) == (len(texts), expected)
        assert written.pairs.tolist() == compiled.pairs.tolist()
    assert [compiled.text(slot) for slot in range(len(known))] == list(known)


@pytest.mark.slow
@pytest.mark.parametrize("pick", [as_written, as_compiled])
@given(texts=st.lists(TEXT, min_size=1, max_size=12, unique=True), data=st.data())
@settings(deadline=None)
def test_texts_are_written_out_in_any_order(pick: Pick, texts: list[bytes], data: st.DataObject) -> None:
    table = Texts(pick)
    table.assign(texts)
    slots = data.draw(st.lists(st.sampled_from(range(len(texts))), max_size=12))
    offsets = np.cumsum([0, *(len(texts[slot]) for slot in slots)])
    written: Ints = np.zeros(offsets[-1] // 8 + 2, dtype=np.int64)
    pick(write_strings)(np.array(slots, dtype=np.int64), table.starts, table.arena, offsets, written)
    assert written.tobytes()[: offsets[-1]] == b"".join(texts[slot] for slot in slots)
