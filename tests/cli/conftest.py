"""Benchmarks in tests: each on a heap of its own."""

from tests.heap import small_heap as small_heap
