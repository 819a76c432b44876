"""Rows over TCP: connecting out, listening with a token, cuts, bad lines, broken connections."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest

import penstock as ps
from penstock.connect.protocol import Delivery, Reader, SourceBatch
from penstock.connect.readers import tcp as tcp_reader
from penstock.errors import ConnectorError, SchemaError
from tests.support.reader_contents import bad_of, rows_of
from tests.support.sockets import HOST, TOKEN, connect, free_port, send, serve

SCHEMA = {"a": int, "b": str}
LONG = timedelta(seconds=20)  # longer than any test takes: only row counts cut


def reader(port: int, **options: Any) -> Reader:
    return ps.read.tcp(HOST, port, schema=SCHEMA, **options)


def test_json_lines_are_read_until_the_other_side_closes() -> None:
    with serve(b'{"a": 1, "b": "x"}\n{"a": 2}\n', b'{"a": 3, "b": "z"}\n') as port:
        assert rows_of(reader(port)) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]


def test_a_row_may_arrive_in_pieces_and_the_last_may_lack_its_line_feed() -> None:
    with serve(b'{"a": 1, ', b'"b": "x"}', b'\n{"a": 2', b"}") as port:
        assert rows_of(reader(port)) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_csv_lines_have_no_header_and_the_order_of_the_schema() -> None:
    with serve(b'1,x\n2,\n3,"y\nz"\n') as port:
        assert rows_of(reader(port, format="csv")) == [
            {"a": 1, "b": "x"},
            {"a": 2, "b": None},
            {"a": 3, "b": "y\nz"},
        ]


def test_csv_takes_a_delimiter_and_nulls() -> None:
    with serve(b"1;-\n") as port:
        assert rows_of(reader(port, format="csv", delimiter=";", nulls=["-"])) == [{"a": 1, "b": None}]


def test_lines_that_are_no_rows_are_bad_rows_with_their_text_and_place() -> None:
    with serve(b'{"a": 1}\nnonsense\n{"a": "one"}\n{"a": 4}\n') as port:
        first, second = bad_of(reader(port))
        assert (first.raw, first.place) == ("nonsense", f"{HOST}:{port}:2")
        assert first.error.startswith("malformed JSON")
        assert (second.raw, second.place) == ('{"a": "one"}', f"{HOST}:{port}:3")
        assert 'column "a"' in second.error


def test_bad_csv_lines_leave_the_others_alone() -> None:
    with serve(b"1,x\ntwo,y\n3,z,extra\n4,w\n") as port:
        (batch,) = reader(port, format="csv", wait=LONG).batches()
        assert batch.rows.to_pylist() == [{"a": 1, "b": "x"}, {"a": 4, "b": "w"}]
        assert [bad.place.rpartition(":")[2] for bad in batch.bad] == ["2", "3"]


def test_batches_are_cut_by_rows_and_numbered_over_all_of_them() -> None:
    lines = b"".join(b'{"a": %d}\n' % i for i in range(7))
    with serve(lines) as port:
        batches = list(reader(port, batch=3, wait=LONG).batches())
        assert [batch.rows.column("a").to_pylist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
        assert [n for b in batches if b.seq is not None for n in b.seq.to_pylist()] == list(range(7))


def test_a_batch_that_does_not_fill_up_leaves_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as server:
        batches = reader(server.getsockname()[1], wait=timedelta(milliseconds=1)).batches()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, batches)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b'{"a": 1}\n')
                assert first.result(10).rows.to_pylist() == [{"a": 1, "b": None}]
                monkeypatch.setattr(tcp_reader, "POLL_S", 0.001)
                assert next(batches).rows.num_rows == 0  # nothing comes: a round without rows
                connection.sendall(b'{"a": 2}\n')
                assert _next_with_rows(batches).rows.to_pylist() == [{"a": 2, "b": None}]
        assert list(batches) == []


def _next_with_rows(batches: Any) -> SourceBatch:
    first_batch: SourceBatch = next(batch for batch in batches if batch.rows.num_rows)
    return first_batch


def test_whoever_listens_takes_rows_only_after_the_token() -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(rows_of, reader(port, listen=True, token=TOKEN))
        send(port, b"open sesame\n", b'{"a": 666}\n')
        send(port, b'{"a": 667}\n')
        send(port, b"")
        send(port, TOKEN.encode() + b'\n{"a": 1}\n', b'{"a": 2}\n')
        assert rows.result(10) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


def test_a_token_that_never_ends_is_turned_away() -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(rows_of, reader(port, listen=True, token=TOKEN))
        with connect(port) as endless:
            endless.sendall(b"x" * 10_000)
            send(port, TOKEN.encode() + b'\r\n{"a": 1}\n')
            assert rows.result(10) == [{"a": 1, "b": None}]


def test_senders_come_one_after_the_other_and_rows_are_numbered_on() -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        batches = pool.submit(lambda: list(reader(port, listen=True, token=TOKEN, senders=2).batches()))
        for i in range(2):
            send(port, TOKEN.encode() + b"\n", b'{"a": %d}\n' % i)
        result = [batch for batch in batches.result(10) if batch.rows.num_rows]
        assert [batch.rows.column("a").to_pylist() for batch in result] == [[0], [1]]
        assert [batch.seq.to_pylist() for batch in result if batch.seq is not None] == [[0], [1]]


def test_while_nobody_connects_rounds_without_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_reader, "POLL_S", 0.001)
    batches = reader(free_port(), listen=True, token=TOKEN).batches()
    assert [next(batches).rows.num_rows for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_graph_reads_from_a_socket_and_dead_letters_bad_lines(runs_on: str) -> None:
    lines = b'{"a": 1, "b": "x"}\nnonsense\n{"a": 3, "b": "z"}\n'
    with serve(lines) as port:
        graph = ps.PipeGraph("tcp")
        pipe = graph.source(reader(port, bounded=True, wait=LONG), name="in", on_error="dead_letter")
        good, bad = graph.collect(pipe, pipe.errors, engine=runs_on)
        assert good.column("a").to_pylist() == [1, 3]
        assert bad.column("raw").to_pylist() == ["nonsense"]


def test_a_run_that_waits_for_a_sender_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_reader, "POLL_S", 0.01)
    graph = ps.PipeGraph("tcp")
    graph.source(reader(free_port(), listen=True, token=TOKEN)).sink(ps.write.memory())
    run = graph.start(engine="local")
    run.stop()
    assert run.wait(30).outcome == "stopped"


def test_what_it_says_of_itself() -> None:
    out = reader(9000, bounded=True)
    assert out.describe() == f"tcp {HOST}:9000 (jsonl)"
    assert (out.bounded, out.delivery, out.keeps_raw) == (True, Delivery.AT_MOST_ONCE, True)
    listening = ps.read.tcp("::1", 9000, schema=SCHEMA, format="csv", listen=True, token=TOKEN)
    assert listening.describe() == "tcp [::1]:9000 (csv, listening)"
    assert not listening.bounded
    assert TOKEN not in repr(listening)


def test_nobody_to_connect_to_is_said() -> None:
    port = free_port()
    with pytest.raises(
        ConnectorError, match=f"cannot connect to {HOST}:{port}: Connection refused"
    ) as caught:
        rows_of(reader(port))
    assert caught.value.hint == "start the other side first, or mend host and port"


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConnectorError, match=f"cannot listen on {HOST}:{port}: Address already in use"):
            rows_of(reader(port, listen=True, token=TOKEN))


def test_a_connection_that_breaks_is_said_with_how_far_it_came() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        batches = reader(port, batch=1).batches()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, batches)
            connection, _ = server.accept()
            connection.sendall(b'{"a": 1}\n')
            assert first.result(10).rows.num_rows == 1
            reset(connection)
        with pytest.raises(ConnectorError, match=f"the connection to {HOST}:{port} broke after 1 lines: "):
            list(batches)


def reset(connection: socket.socket) -> None:
    """Close by reset, as when the other side dies: linger for no time."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_connections_that_say_nothing_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be waited for as long as a test may take, if one had to wait for it."""
    monkeypatch.setattr(tcp_reader, "TOKEN_S", 3600.0)
    port = free_port()
    with ThreadPoolExecutor(1) as pool, ExitStack() as silent:
        rows = pool.submit(rows_of, reader(port, listen=True, token=TOKEN))
        for text in (b"", b"open", b"", TOKEN.encode(), b"", b""):
            connection = silent.enter_context(connect(port))
            connection.sendall(text)
        send(port, TOKEN.encode() + b'\n{"a": 1}\n')
        assert rows.result(30) == [{"a": 1, "b": None}]


def test_a_connection_that_never_sends_its_token_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_reader, "TOKEN_S", 0.05)
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(rows_of, reader(port, listen=True, token=TOKEN))
        with connect(port) as silent:
            assert silent.recv(1) == b""
        send(port, TOKEN.encode() + b'\n{"a": 1}\n')
        assert rows.result(30) == [{"a": 1, "b": None}]


def test_a_token_may_come_in_pieces_while_another_sender_is_read() -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(rows_of, reader(port, listen=True, token=TOKEN, senders=2))
        with connect(port) as slow, connect(port) as first:
            slow.sendall(TOKEN.encode()[:5])
            first.sendall(TOKEN.encode() + b'\n{"a": 1}\n')
            slow.sendall(TOKEN.encode()[5:] + b'\n{"a": 2}\n')
        assert sorted(row["a"] for row in rows.result(30)) == [1, 2]


def test_where_senders_come_and_go_a_reset_connection_is_logged_and_the_next_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    batches: Any = reader(port, listen=True, token=TOKEN, senders=None, batch=1).batches()
    with ThreadPoolExecutor(1) as pool:
        for i in range(2):
            first = pool.submit(_next_with_rows, batches)
            connection = connect(port)
            connection.sendall(TOKEN.encode() + b'\n{"a": %d}\n{"a": ' % i)
            assert first.result(30).rows.to_pylist() == [{"a": i, "b": None}]
            reset(connection)
        last = pool.submit(_next_with_rows, batches)
        send(port, TOKEN.encode() + b'\n{"a": 7}\n')
        assert last.result(30).rows.to_pylist() == [{"a": 7, "b": None}]
    messages = [record.getMessage() for record in caplog.records if record.name == "penstock.tcp"]
    assert [text.partition(": ")[0] for text in messages] == [
        f"the connection to {HOST}:{port} broke after 1 lines"
    ] * 2
    assert messages[-1].endswith("(2 broken connections so far)")
    batches.close()


@pytest.mark.parametrize(
    ("format", "piece"),
    [
        ("jsonl", b'{"a": '),
        ("csv", b"1"),
        ("csv", b"12,ab"),  # looks like a row, and may have been 12,abc
        ("csv", b'1,"two\nlines'),
        ("csv", b'1,"a\r'),
    ],
)
@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_where_senders_come_and_go_one_that_closes_within_a_line_loses_it_and_the_next_is_read(
    runs_on: str, format: str, piece: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    row = b'{"a": 1}\n' if format == "jsonl" else b"1,\n"
    graph = ps.PipeGraph("tcp")
    arrivals: Queue[int] = Queue()
    pipe = graph.source(reader(port, format=format, listen=True, token=TOKEN, senders=None, batch=1))
    pipe.sink(ps.write.callback(lambda rows: arrivals.put(rows["a"][0].as_py())))
    run = graph.start(engine=runs_on)
    for _ in range(2):
        send(port, TOKEN.encode() + b"\n" + row + piece)
        assert arrivals.get(timeout=30) == 1
    send(port, TOKEN.encode() + b"\n" + row)
    assert arrivals.get(timeout=30) == 1
    run.stop()
    assert run.wait(30).outcome == "stopped"
    messages = [record.getMessage() for record in caplog.records if record.name == "penstock.tcp"]
    lost = "it was closed within the next, of which"
    assert messages == [
        f"the connection to {HOST}:{port} broke after 1 lines: {lost} {len(piece)} bytes are lost "
        f"({n} broken connections so far)"
        for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("format", "text"),
    [("jsonl", b'{"a": 7}'), ("jsonl", b'{"a": 7}\r'), ("jsonl", b'{"a": 7}\n  '), ("csv", b"7,\r")],
)
def test_where_senders_come_and_go_a_last_row_that_is_whole_needs_no_line_feed(
    format: str, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    batches: Any = reader(port, format=format, listen=True, token=TOKEN, senders=None, batch=1).batches()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(_next_with_rows, batches)
        send(port, TOKEN.encode() + b"\n" + text)
        assert first.result(30).rows.to_pylist() == [{"a": 7, "b": None}]
        last = pool.submit(_next_with_rows, batches)
        send(port, TOKEN.encode() + (b'\n{"a": 8}\n' if format == "jsonl" else b"\n8,\n"))
        assert last.result(30).rows.to_pylist() == [{"a": 8, "b": None}]
    assert not caplog.records
    batches.close()


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_reader, "MAX_ROW_BYTES", 10)
    with (
        serve(b'{"a": 1}\n{"b": "', b"x" * 100) as port,
        pytest.raises(ConnectorError, match=f"line 2 from {HOST}:{port} is longer than 10 bytes"),
    ):
        rows_of(reader(port))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"host": ""}, "host='' is no host"),
        ({"port": 0}, "port=0 is no port"),
        ({"port": 70_000}, "port=70000 is no port"),
        ({"port": "9000"}, "port='9000' is no port"),
        ({"token": "short"}, "the token= cannot be used"),
        ({"token": "two\nlines of it"}, "the token= cannot be used"),
        ({"listen": True}, f"listening on {HOST}:9000 without a token would let anyone send rows"),
        ({"format": "json"}, "tcp has no format 'json'"),
        ({"batch": 0}, "batch=0 is not a number of rows"),
        ({"senders": 0}, "senders=0 is not a number of rows"),
        ({"wait": timedelta()}, r"wait=datetime.timedelta\(0\) is not a length of time"),
        ({"wait": 100}, "wait=100 is not a length of time"),
        ({"format": "csv", "delimiter": "||"}, r"delimiter='\|\|' cannot part columns"),
        ({"format": "csv", "nulls": "-"}, "nulls='-' is not a list of texts"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    arguments: dict[str, Any] = {"host": HOST, "port": 9000, "schema": SCHEMA} | options
    with pytest.raises(ConnectorError, match=says):
        ps.read.tcp(**arguments)


def test_csv_has_no_lists() -> None:
    with pytest.raises(SchemaError, match='csv has no way to write column "a"'):
        ps.read.tcp(HOST, 9000, schema={"a": list[int]}, format="csv")


def test_a_token_is_never_in_the_message() -> None:
    with pytest.raises(ConnectorError) as caught:
        ps.read.tcp(HOST, 9000, schema=SCHEMA, listen=True, token="secret\n")
    assert "secret" not in str(caught.value).replace("secrets.token_urlsafe", "")
