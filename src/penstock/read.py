"""Where rows come from: `ps.read.parquet("events/")`, `ps.read.rows([…])`.

Every function returns a reader for `graph.source`; see `penstock.connect.protocol` for what a reader is.
"""

from penstock.lazy import attach_stub

attach_stub(__name__)
