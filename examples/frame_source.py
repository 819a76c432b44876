"""A source that subscribes to a server, as with a websocket: frames of rows, each with a number.

Run it with `python examples/frame_source.py`. A subscriber says which frame it has seen last, and the server
goes on behind it; so the frame's number is the position, and after a crash no row is lost or read twice. The
server here speaks a frame as its length in four bytes and JSON; with a websocket library, `read_frame` is its
`recv`, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import penstock as ps

SCHEMA = {"sensor": int, "value": float}


def pack(frame: dict[str, Any]) -> bytes:
    body = json.dumps(frame).encode()
    return len(body).to_bytes(4, "big") + body


async def read_frame(stream: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        size = int.from_bytes(await stream.readexactly(4), "big")
        frame: dict[str, Any] = json.loads(await stream.readexactly(size))
    except asyncio.IncompleteReadError:
        return None
    return frame


def subscribe(port: int) -> Callable[..., AsyncIterator[object]]:
    """Return the generator function of a source."""

    async def frames(position: int | None = None) -> AsyncIterator[object]:
        stream, to_server = await asyncio.open_connection("127.0.0.1", port)
        try:
            to_server.write(pack({"seen": -1 if position is None else position}))
            await to_server.drain()
            while (frame := await read_frame(stream)) is not None:
                yield frame["rows"]  # a list is a batch of its own
                yield ps.Position(frame["number"])
        finally:
            to_server.close()

    return frames


class FrameServer:
    """Sends its frames to everybody who subscribes, from the one that they ask for."""

    def __init__(self, n_frames: int) -> None:
        self.asked: list[int] = []  # what subscribers had seen when they came
        self._n_frames, self._loop, self._ready = n_frames, asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self, stream: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        hello = await read_frame(stream) or {"seen": -1}
        self.asked.append(hello["seen"])
        for number in range(hello["seen"] + 1, self._n_frames):
            rows = [{"sensor": number % 3, "value": number + i / 10} for i in range(5)]
            to_client.write(pack({"number": number, "rows": rows}))
        await to_client.drain()
        to_client.close()


def measure(port: int, writer: ps.Writer) -> ps.PipeGraph:
    graph = ps.PipeGraph("measure", engine="local")
    values = graph.source(ps.read.generator(subscribe(port), schema=SCHEMA), name="frames")
    values.sink(writer, name="values")
    return graph


if __name__ == "__main__":
    server, out = FrameServer(20), ps.write.memory()
    measure(server.port, out).run()
    server.close()
    print(len(out.rows()), "rows of 20 frames")
