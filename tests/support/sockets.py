"""The other side of a TCP connection, on loopback, in a thread of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

HOST = "127.0.0.1"
TOKEN = "open sesame, please"


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serve(*texts: bytes) -> Iterator[int]:
    """A server that sends the texts to whoever connects first, and closes; its port."""
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(10)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for text in texts:
                    connection.sendall(text)

        served = pool.submit(serve)
        yield server.getsockname()[1]
        served.result(10)


@contextmanager
def receive() -> Iterator[tuple[int, Future[bytes]]]:
    """A server that keeps all that the first to connect sends; its port, and what came in the end."""
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(10)

        def receive() -> bytes:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(10)
                blocks = list(iter(lambda: connection.recv(1 << 16), b""))
            return b"".join(blocks)

        yield server.getsockname()[1], pool.submit(receive)


def send(port: int, *texts: bytes) -> None:
    """Connect as soon as somebody listens, send the texts, close."""
    with connect(port) as connection:
        for text in texts:
            connection.sendall(text)


def connect(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    for _ in range(10_000):
        try:
            return socket.create_connection((HOST, port), timeout=10)
        except ConnectionRefusedError:
            continue
    raise AssertionError(f"nobody listens on port {port}")
