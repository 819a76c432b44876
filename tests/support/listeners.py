"""Which addresses a process listens on, read from /proc."""

from __future__ import annotations

import ipaddress
from pathlib import Path

LISTEN = "0A"


def with_children(process: int) -> list[int]:
    """The process and all that it started, directly or not."""
    pids = [process]
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            pids += [int(child) for child in task.read_text().split()]
    return pids


def addresses_of(process: int) -> set[str]:
    """The addresses on which the process itself holds a listening TCP socket."""
    try:
        sockets = _sockets(process)
    except FileNotFoundError:  # it has ended
        return set()
    return {address for inode, address in _listening_sockets() if inode in sockets}


def _sockets(process: int) -> set[str]:
    result = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed since it was listed
            continue
        if target.startswith("socket:["):
            result.add(target[len("socket:[") : -1])
    return result


def _listening_sockets() -> list[tuple[str, str]]:
    result = []
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                result.append((fields[9], _address(fields[1].partition(":")[0])))
    return result


def _address(text: str) -> str:
    """The kernel prints addresses as 32-bit words, each with its bytes in reverse."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return f"::ffff:{mapped}" if mapped else str(address)
