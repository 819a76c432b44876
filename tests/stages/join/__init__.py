"""Tests of window stages and their stores."""
