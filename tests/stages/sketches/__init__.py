"""Tests of sketches."""
