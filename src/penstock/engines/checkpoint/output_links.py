"""What ties the output of a sink to the checkpoint of its run.

The output records whose it is, and with every commit how far the checkpoint was: its newest manifest, and the
journals of input files. The manifests record how far the output was. So an output that is older than its
checkpoint, a checkpoint that is older than its output, and one of another run are refused by name: rows would
be lost or doubled. An output may be ahead of the newest manifest: after a crash its rounds are done again,
and it takes none of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connect.protocol import OutputRecord
from penstock.engines.checkpoint.sealed_files import START_ANEW, ChainedLog, damage_error
from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from penstock.engines.checkpoint.journal import Journal

_RESTORE = f"bring the output back as this checkpoint left it; or {START_ANEW}"
_RESTORE_BOTH = f"bring checkpoint and output back from one moment; or {START_ANEW}"


class SinkLink:
    """The link of one sink.

    run        the identity of the checkpoint
    committed  the last round that is known to be committed in the output; None if none is
    read_head  returns how far the checkpoint is
    file       where the output has its record; None before it is open
    """

    def __init__(
        self,
        sink: str,
        folder: Path,
        run: str,
        *,
        known: bool,
        is_old: bool,
        committed: int | None,
        rounds: int | None,
        journals: Mapping[str, Journal],
        records: ChainedLog | None,
        read_head: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Prepare the check of an output.

        known      the sink has been opened by an earlier run of this checkpoint
        is_old     the checkpoint was begun in format 3, whose outputs had no identity
        committed  as the newest manifest says
        rounds     the number of rounds that it says are done; None if there is no manifest
        records    of rounds in process; None if they could not be read
        """
        self._records = records
        self._sink, self._folder, self.run = sink, folder, run
        self._known, self._is_old, self._rounds = known, is_old, rounds
        self.committed, self._journals, self.read_head = committed, journals, read_head
        self.file: Path | None = None

    def check(self, file: Path, saved: OutputRecord | None) -> None:
        """Raise CheckpointError unless an output is what this checkpoint has left.

        file   where the record is, or should be
        saved  None if there is none
        """
        self.file = file
        if not self._known:
            return
        if saved is None or not saved.run:
            if self._is_old and (saved is not None or self.committed is None):
                return
            raise self._refusal(
                file,
                "is gone" if saved is None else "is of an older format",
                "what says which rows are there",
            )
        if saved.run != self.run:
            detail = f"it is of the checkpoint with the identity {saved.run}, and this is {self.run}"
            raise self._refusal(file, "is that of another run", detail)
        if self.committed is not None and (saved.committed is None or saved.committed < self.committed):
            detail = (
                f"its last round is {saved.committed}, and round {self.committed} had been written: the rows "
                "between them would stay lost"
            )
            raise self._refusal(file, "is older than the checkpoint", detail)
        if self._rounds is None and saved.committed is not None:
            detail = f"it holds no manifest, and {file} has round {saved.committed}"
            raise damage_error(self._folder / "commits", "is empty", detail, _RESTORE_BOTH)
        if int(saved.head.get("rounds", 0)) > (self._rounds or 0):
            raise damage_error(
                self._folder / "commits",
                "is older than the output",
                f"its newest manifest says that {self._rounds:,} rounds are done, and {file} was written "
                f"after {saved.head['rounds']:,} were",
                _RESTORE_BOTH,
            )
        for source, head in saved.head.get("journals", {}).items():
            if source in self._journals:
                self._journals[source].require(head, str(file))
        if self._records is not None and "records" in saved.head:
            self._records.require(saved.head["records"], str(file))
        self.committed = saved.committed

    def record(self, batch: int) -> None:
        """Take note that a round is committed, durably."""
        self.committed = batch

    def _refusal(self, file: Path, why: str, detail: str) -> CheckpointError:
        return CheckpointError(
            f'the output of sink "{self._sink}" {why}', detail=f"{file}: {detail}", hint=_RESTORE
        )
