"""A place on the network: host and port, and the token that whoever connects must show.

The token is a line of text, sent first. It goes over the wire as it is, like the rows: it keeps other
programs of the machine from talking to a run by mistake or by malice, and is no match for a listener on the
way. It is never printed.
"""

from __future__ import annotations

import socket
from dataclasses import field
from datetime import timedelta

from penstock.errors import ConnectorError
from penstock.frozen import dataclass

CONNECT_S = 10.0
LEAST_TOKEN, MOST_TOKEN = 8, 512


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and token, all checked."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        """Connect out, and show the token if there is one."""
        try:
            connection = socket.create_connection((self.host, self.port), timeout=CONNECT_S)
            if self.token is not None:
                connection.send(self.token.encode() + b"\n")  # a new connection has room for so little
            return connection
        except OSError as problem:
            raise ConnectorError(
                f"cannot connect to {self}: {system_message(problem)}",
                hint="start the other side first, or mend host and port",
            ) from problem

    def listen(self) -> socket.socket:
        """Wait for others to connect."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as problem:
            raise ConnectorError(
                f"cannot listen on {self}: {system_message(problem)}",
                hint="choose a free port and an address of this machine",
            ) from problem


def check_address(host: object, port: object, token: object) -> Address:
    """An address as a user gave it."""
    if not isinstance(host, str) or not host.strip():
        raise ConnectorError(f"host={host!r} is no host", hint='a name or an address: "127.0.0.1"')
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 1 << 16:
        raise ConnectorError(f"port={port!r} is no port", hint="a whole number from 1 to 65535")
    if token is None:
        return Address(host, port)
    if not isinstance(token, str) or not token.isprintable() or not LEAST_TOKEN <= len(token) <= MOST_TOKEN:
        raise ConnectorError(
            "the token= cannot be used",
            detail=f"it must be one line of {LEAST_TOKEN} to {MOST_TOKEN} printable characters",
            hint="make one: token=secrets.token_urlsafe()",
        )
    return Address(host, port, token)


def check_wait(name: str, value: object) -> float:
    """A length of time as a user gave it, in seconds."""
    if not isinstance(value, timedelta) or value <= timedelta():
        raise ConnectorError(
            f"{name}={value!r} is not a length of time",
            hint=f"give a timedelta above zero: {name}=timedelta(milliseconds=100)",
        )
    return value.total_seconds()


def system_message(problem: OSError) -> str:
    """What the system said went wrong."""
    return problem.strerror or str(problem) or type(problem).__name__
