"""Whole programs that come with Penstock; `penstock demo` runs the first of them."""
