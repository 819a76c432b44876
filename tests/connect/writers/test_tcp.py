"""Rows out over TCP: lines per committed batch, the token first, receivers that go away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connect.protocol import Delivery
from penstock.connect.writers import tcp
from penstock.errors import ConnectorError, SchemaError
from tests.support.reader_contents import rows_of
from tests.support.sockets import HOST, TOKEN, free_port, receive, serve

ROWS = pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", None]})


def test_batches_are_sent_when_they_are_committed_and_once() -> None:
    with receive() as (port, received):
        output = ps.write.tcp(HOST, port).open(ROWS.schema, "out")
        output.write(0, ROWS)
        output.write(1, ROWS.slice(1))
        output.commit(0)
        output.commit(0)
        output.close()
        assert received.result(10) == b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n'


def test_the_token_goes_first() -> None:
    with receive() as (port, received):
        output = ps.write.tcp(HOST, port, token=TOKEN, format="csv").open(ROWS.schema, "out")
        output.write(0, ROWS)
        output.commit(0)
        output.close()
        assert received.result(10) == TOKEN.encode() + b"\n1,x\n2,\n"


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_sent_reads_back_the_same(form: str) -> None:
    with receive() as (port, received):
        output = ps.write.tcp(HOST, port, format=form).open(ROWS.schema, "out")
        output.write(0, ROWS)
        output.commit(0)
        output.close()
        sent = received.result(10)
    with serve(sent) as port:
        back = ps.read.tcp(HOST, port, schema={"a": int, "b": str}, format=form)
        assert rows_of(back) == ROWS.to_pylist()


def test_a_graph_writes_to_a_socket() -> None:
    with receive() as (port, received):
        graph = ps.PipeGraph("tcp")
        rows = graph.source(ps.read.rows([{"a": 1}, {"a": 2}, {"a": 3}]))
        rows.filter(ps.col("a") > 1).sink(ps.write.tcp(HOST, port))
        graph.run(engine="reference")
        assert received.result(10) == b'{"a":2}\n{"a":3}\n'


def test_a_receiver_that_is_not_there_is_said_when_the_run_begins() -> None:
    port = free_port()
    with pytest.raises(ConnectorError, match=f"cannot connect to {HOST}:{port}: Connection refused"):
        ps.write.tcp(HOST, port).open(ROWS.schema, "out")


def test_a_receiver_that_takes_nothing_is_said_with_how_much_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "STALL_S", 0.01)
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        output = ps.write.tcp(HOST, port).open(ROWS.schema, "out")
        connection, _ = server.accept()
        with connection:
            huge = pa.RecordBatch.from_pydict({"a": [1], "b": ["x" * (1 << 25)]})
            output.write(7, huge)
            with pytest.raises(
                ConnectorError, match=f"{HOST}:{port} took [0-9]+ of the [0-9]+ bytes of batch 7: timed out"
            ):
                output.commit(7)
            output.close()


def test_a_run_that_is_stopped_does_not_wait_long_for_a_receiver_that_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp, "SHUTDOWN_S", 0.01)
    graph, begun = ps.PipeGraph("stuck"), threading.Event()

    def endless() -> Iterator[dict[str, str]]:
        while True:
            begun.set()
            yield {"b": "x" * (1 << 25)}

    rows = graph.source(ps.read.generator(endless, schema={"b": str}, batch=1, bounded=False))
    with socket.create_server((HOST, 0)) as server:
        rows.sink(ps.write.tcp(HOST, server.getsockname()[1]), name="out")
        run = graph.start("local")
        connection, _ = server.accept()
        with connection:
            assert begun.wait(60)
            run.stop()
            with pytest.raises(ConnectorError, match=r"bytes of batch \d+: timed out"):
                run.wait(30)


def test_what_it_says_of_itself() -> None:
    writer = ps.write.tcp(HOST, 9000, token=TOKEN)
    assert writer.describe() == f"tcp {HOST}:9000 (jsonl)"
    assert (writer.delivery, writer.accepts_updates) == (Delivery.AT_LEAST_ONCE, True)
    assert TOKEN not in repr(writer)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "cvs"}, "tcp has no format 'cvs'"),
        ({"port": -1}, "port=-1 is no port"),
        ({"token": ""}, "the token= cannot be used"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    arguments: dict[str, Any] = {"host": HOST, "port": 9000} | options
    with pytest.raises(ConnectorError, match=says) as caught:
        ps.write.tcp(**arguments)
    assert caught.value.hint


def test_csv_cannot_send_lists() -> None:
    with receive() as (port, _):
        with pytest.raises(SchemaError, match="csv cannot hold column"):
            ps.write.tcp(HOST, port, format="csv").open(pa.schema([("a", pa.list_(pa.int64()))]), "out")
        socket.create_connection((HOST, port)).close()
