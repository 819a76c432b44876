"""Other systems, each in an environment of its own, as ways of a benchmark."""
