"""Results that are committed, and what is written from them: docs/results.md, README's table, plots."""
