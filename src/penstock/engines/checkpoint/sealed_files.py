"""Files of a checkpoint: written whole or not at all, refused by name if they are not what was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.connect.writers.staged_files import replace_file, seal, unseal
from penstock.crash_points import pass_crash_point
from penstock.errors import CheckpointError, describe_cause

START_ANEW = (
    "start anew with an empty checkpoint folder and an empty output folder, which reads all input again"
)
RESTORE = f"bring it back from a backup; or {START_ANEW}"


def write_sealed(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a file with its checksum, completely or not at all."""
    try:
        replace_file(path, seal(contents), pass_crash_point)
    except OSError as cause:
        raise write_error(path, cause) from cause


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what a file holds; raise CheckpointError if it is damaged."""
    try:
        contents, _ = unseal(path.read_text("utf-8"))
        if not isinstance(contents, dict):
            raise TypeError(f"it holds a {type(contents).__name__}")
    except (OSError, ValueError, TypeError) as cause:
        raise damage_error(path, "cannot be read", describe_cause(cause)) from cause
    return contents


def damage_error(path: Path, why: str, detail: str, hint: str = RESTORE) -> CheckpointError:
    """Return the error for a file that is missing, damaged, older than others, or of another run."""
    return CheckpointError(
        f"the checkpoint is damaged: {path.name} {why}", detail=f"{path}: {detail}", hint=hint
    )


def write_error(path: Path, cause: OSError) -> CheckpointError:
    """Return the error for a file that cannot be written."""
    return CheckpointError(
        f"the checkpoint cannot be written: {describe_cause(cause)}",
        detail=str(path),
        hint="make room, or see that it can be written, and start again; what was saved is still there",
    )
