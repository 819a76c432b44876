"""The package brings itself to executors that do not have it: a zip, sent along with the program.

Only the package's own files; pyarrow, numpy and numba must be installed where executors run. Embedded Spark
needs none of this, because its workers are processes of this very machine and environment.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent.parent
_SUFFIXES = {".py", ".typed", ".properties"}
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same files make the same zip


def ship(context: Any) -> None:
    """Send the package to the executors of a Spark context, once."""
    name = f"penstock-{_digest()}.zip"
    if any(file.endswith(name) for file in context.listFiles):
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    before = list(sys.path)
    context.addPyFile(str(write_zip(folder / name)))
    sys.path[:] = before  # Spark puts the zip on the driver's path, which has the package already


def write_zip(target: Path, package: Path = PACKAGE) -> Path:
    """Write the package as a zip from which Python can import it."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in _files(package):
            told = zipfile.ZipInfo(file.relative_to(package.parent).as_posix(), _LONG_AGO)
            zipped.writestr(told, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def _files(package: Path) -> list[Path]:
    return sorted(file for file in package.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _digest() -> str:
    seen = hashlib.sha256()
    for file in _files(PACKAGE):
        seen.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:12]
