"""Penstock: stream processing in Python, on Spark Structured Streaming or in process.

A program is a graph of operators over out-of-order streams: `PipeGraph` starts it, `MultiPipe` has a verb
per operator, `run` carries the rows. See README.md for a first program and docs/semantics.md for what
windows, watermarks and late rows mean.
"""

from penstock.lazy import attach_stub

attach_stub(__name__)
