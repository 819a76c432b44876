"""Compiled loops from the cache, and what of Numba they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.kernels.loops import load_cached, parse_signature

CACHED = """
import sys
from penstock.kernels.windows.accumulate import count_rows
count_rows.compiled
print("numba.cpython.unicode" in sys.modules)
import numba
later = numba.njit(lambda text: text.upper())  # what compiles is there as soon as it is needed
assert later("a") == "A"
"""


def never_compiled(number: int) -> int:
    return number + 1


def test_what_the_cache_does_not_have_is_not_loaded() -> None:
    assert load_cached(never_compiled, parse_signature("i"), nogil=True) is None


@pytest.mark.slow
def test_a_loop_from_the_cache_comes_without_what_compiles_text() -> None:
    for _ in range(2):  # the first may have to build it
        done = subprocess.run([sys.executable, "-c", CACHED], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
