"""WindFlow's four windowed patterns as decompositions of one stage: the same answer, spread differently."""
