"""A writer that posts batches to an HTTP server, under a key by which the server knows a batch again.

Run it with `python examples/http_sink.py`. A batch that comes again after a crash has the same number and the
same rows, so it is posted under the same key; a server that takes every key once has every row once.
"""

from __future__ import annotations

import json
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa

import penstock as ps
from penstock.connectors import Delivery, Output


class HttpWriter:
    """Posts every batch as JSON lines. It is delivered at least once; the key makes that exactly once."""

    delivery, accepts_updates = Delivery.AT_LEAST_ONCE, True

    def __init__(self, host: str, port: int, path: str, tries: int = 3) -> None:
        self.host, self.port, self.path, self.tries = host, port, path, tries

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Output:
        return HttpOutput(self, sink)

    def describe(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"


class HttpOutput:
    def __init__(self, writer: HttpWriter, sink: str) -> None:
        self._writer, self._sink = writer, sink
        self._rows: list[dict[str, object]] = []

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        self._rows += rows.to_pylist()

    def commit(self, batch: int) -> None:
        rows, self._rows = self._rows, []
        body = "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()
        for n_failed in range(self._writer.tries):
            try:
                if self._post(body, f"{self._sink}-{batch}") < 500:
                    return
            except OSError as problem:
                if n_failed + 1 == self._writer.tries:
                    raise ps.ConnectorError(
                        f"{self._writer.describe()} cannot be reached: {problem}"
                    ) from problem
            time.sleep(0.05 * 2**n_failed)
        raise ps.ConnectorError(f"{self._writer.describe()} did not take batch {batch}")

    def _post(self, body: bytes, key: str) -> int:
        connection = HTTPConnection(self._writer.host, self._writer.port, timeout=10)
        try:
            headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
            connection.request("POST", self._writer.path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def close(self) -> None:
        self._rows.clear()


class RowServer(ThreadingHTTPServer):
    """Keeps the rows of every key once; says that it is busy as often as asked to."""

    def __init__(self, busy: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), RowHandler)
        self.batches: dict[str, list[dict[str, object]]] = {}
        self.n_posts, self.busy = 0, busy
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    @property
    def rows(self) -> list[dict[str, object]]:
        return [row for batch in self.batches.values() for row in batch]


class RowHandler(BaseHTTPRequestHandler):
    server: RowServer

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        server.n_posts += 1
        server.busy -= 1
        if server.busy < 0:
            server.batches.setdefault(self.headers["Idempotency-Key"], [*map(json.loads, body.splitlines())])
        self.send_response(503 if server.busy >= 0 else 204)
        self.end_headers()

    def log_message(self, *details: object) -> None:
        """Say nothing."""


def post_squares(server: RowServer, n_rows: int) -> ps.PipeGraph:
    graph = ps.PipeGraph("post", engine="local")
    rows = graph.source(ps.read.rows([{"n": n} for n in range(n_rows)], batch=10), name="numbers")
    squares = rows.with_columns(square=ps.col("n") * ps.col("n"))
    squares.sink(HttpWriter("127.0.0.1", server.server_port, "/squares"), name="squares")
    return graph


if __name__ == "__main__":
    server = RowServer(busy=1)
    post_squares(server, 100).run()
    print(len(server.rows), "rows in", len(server.batches), "batches")
    server.close()
