"""Where rows go: `ps.write.parquet("out/")`, `ps.write.memory()`.

Every function returns a writer for `pipe.sink`; see `penstock.connect.protocol` for what a writer is.
"""

from penstock.lazy import attach_stub

attach_stub(__name__)
