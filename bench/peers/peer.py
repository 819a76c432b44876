"""Other systems beside ours: an environment of its own for each, and a process that runs its programs.

What they need would not go into one environment with ours, or with each other. So an environment is made from
the package registry at first use, inside `.venv/peers`, and kept. A process in it holds the data in the form
that suits the peer, stays for all rounds (so that its start, its imports and its compilers are outside the
clock), and runs one query at a time. The programs are in `bench/peers/programs`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.workload import BenchError, Outcome

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENTS = Path(sys.prefix) / "peers"


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """Another system: its name, its script, its pinned packages, and queries it cannot do, with reasons."""

    name: str
    script: str
    requirements: tuple[str, ...]
    cannot: Mapping[str, str] = field(default_factory=dict)


NO_ROWS_BEFORE = {
    "fraud-detection": "{} has no windows of the last rows of a key",
    "spike-detection": "{} has no windows of the last rows of a key",
}
BYTEWAX = Peer("Bytewax", "on_bytewax.py", ("bytewax==0.21.1", "pyarrow==25.0.1"))
PATHWAY = Peer(
    "Pathway",
    "on_pathway.py",
    ("pathway==0.33.0",),
    cannot={query: reason.format("Pathway") for query, reason in NO_ROWS_BEFORE.items()},
)
# Why no packages: PySpark is one of ours, so its process uses our environment, and nothing else of it.
PYSPARK = Peer(
    "PySpark by hand",
    "on_pyspark.py",
    (),
    cannot={query: reason.format("a streaming DataFrame") for query, reason in NO_ROWS_BEFORE.items()},
)
QUIX = Peer(
    "Quix Streams",
    "on_quix.py",
    ("quixstreams==3.25.0",),
    cannot=dict.fromkeys(
        ("swa", "ysb", "ysb-star", "word-count", "fraud-detection", "spike-detection"),
        "it reads and writes nothing but Kafka topics, and the package registry has no broker",
    ),
)
FLINK = Peer("Flink SQL", "on_flink.py", ("apache-flink==2.3.0",))
FLINK_LIVE = Peer("Flink SQL", "on_flink_live.py", FLINK.requirements)
FLINK_PACED = Peer("Flink SQL", "on_flink_paced.py", FLINK.requirements)
POLARS = Peer("Polars, at rest", "on_polars.py", ("polars==2.1.0",))
DUCKDB = Peer("DuckDB, at rest", "on_duckdb.py", ("duckdb==2.0.0", "pyarrow==25.0.1"))


class PeerProcess:
    """A process in the environment of a peer; it is started by the first request and ends with this one.

    Tests name the Python to use, one that has the packages, so that no environment is made.
    """

    def __init__(self, peer: Peer, python: Path | None = None) -> None:
        self._peer = peer
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self._prepared: tuple[str, Path] | None = None

    def prepare(self, query: str, folder: Path) -> None:
        """Load the data of a folder for a query, unless it is loaded already."""
        if self._prepared != (query, folder):
            self._prepared = None
            self._ask(do="prepare", query=query, folder=str(folder))
            self._prepared = (query, folder)

    def run(self) -> Outcome:
        """Run the query that was prepared; its answer is read later, outside the clock."""
        self._ask(do="run")
        return Outcome(lambda: sorted(tuple(row) for row in self._ask(do="answer")))

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._log.close()
            self._process = self._prepared = None

    def _ask(self, **request: Any) -> Any:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        message = json.loads(line) if line else {"error": f"it ended: {self._last_words()}"}
        if "error" in message:
            raise BenchError(f"{self._peer.name} failed to {request['do']}", detail=message["error"][-2_000:])
        return message["reply"]

    def _start(self) -> subprocess.Popen[str]:
        python = self._python or open_environment(self._peer)
        command = [str(python), str(PROGRAMS / self._peer.script)]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(  # noqa: S603 (our own script in an environment of ours)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        atexit.register(self.stop)
        return self._process

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2_000:]


def open_environment(peer: Peer) -> Path:
    """Return the Python of a peer's environment; make it at first use, or when its packages change.

    A peer that needs no packages of its own runs in ours.
    """
    if not peer.requirements:
        return Path(sys.executable)
    digest = hashlib.sha256("\n".join(peer.requirements).encode()).hexdigest()[:12]
    # Why the first two words: programs of one peer share its environment.
    folder = ENVIRONMENTS / f"{'_'.join(Path(peer.script).stem.split('_')[:2])}-{digest}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"making an environment for {peer.name} ...", file=sys.stderr)
        _install([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
        _install(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *peer.requirements,
            ],
            peer,
        )
        complete.touch()
    return python


def _install(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (names we pinned)
    if done.returncode:
        raise BenchError(
            f"no environment could be made for {peer.name}",
            detail=done.stderr[-2_000:],
            hint=f"try: pip install {' '.join(peer.requirements)}",
        )
