"""Network addresses: host and port, and the token that a connecting side must send.

The token is a line of text, sent first and in clear, like the rows. It keeps other programs of the machine
from talking to a run; it does not protect against somebody who listens on the network. It is never printed.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import field

from penstock.errors import ConnectorError, nearest_first
from penstock.frozen import Frozen

CONNECT_S = 10.0
MIN_TOKEN, MAX_TOKEN = 8, 512


class Address(Frozen):
    """Host, port and token, all checked."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        """Connect out, and send the token if there is one."""
        try:
            connection = socket.create_connection((self.host, self.port), timeout=CONNECT_S)
            if self.token is not None:
                connection.send(self.token.encode() + b"\n")  # a new connection has room for it
            return connection
        except OSError as problem:
            raise ConnectorError(
                f"cannot connect to {self}: {system_message(problem)}",
                hint="start the other side first, or mend host and port",
            ) from problem

    def listen(self) -> socket.socket:
        """Listen for others to connect."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as problem:
            raise ConnectorError(
                f"cannot listen on {self}: {system_message(problem)}",
                hint="choose a free port and an address of this machine",
            ) from problem


def check_address(host: object, port: object, token: object) -> Address:
    """Return an address of a user; raise ConnectorError where a part cannot be used."""
    if not isinstance(host, str) or not host.strip():
        raise ConnectorError(f"host={host!r} is no host", hint='a name or an address: "127.0.0.1"')
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 1 << 16:
        raise ConnectorError(f"port={port!r} is no port", hint="a whole number from 1 to 65535")
    if token is None:
        return Address(host, port)
    if not isinstance(token, str) or not token.isprintable() or not MIN_TOKEN <= len(token) <= MAX_TOKEN:
        raise ConnectorError(
            "the token= cannot be used",
            detail=f"it must be one line of {MIN_TOKEN} to {MAX_TOKEN} printable characters",
            hint="make one: token=secrets.token_urlsafe()",
        )
    return Address(host, port, token)


def check_format(format: str, formats: Collection[str]) -> None:
    """Raise ConnectorError unless lines of the format can be sent and received."""
    if format not in formats:
        near = nearest_first(str(format), formats)
        raise ConnectorError(
            f"tcp has no format {format!r}",
            detail=f"available: {', '.join(near)}",
            hint=f'format="{near[0]}"',
        )


def system_message(problem: OSError) -> str:
    """Return the operating system's text for a problem."""
    return problem.strerror or str(problem) or type(problem).__name__
