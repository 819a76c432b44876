"""The verbs of a MultiPipe, by topic."""
