"""A program that copies the rows of files, with a checkpoint, run again after something happened to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import penstock as ps


def write(file: Path, *values: int) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f'{{"v": {value}}}\n' for value in values))


def append(file: Path, *values: int) -> None:
    with file.open("a") as opened:
        opened.writelines(f'{{"v": {value}}}\n' for value in values)


def run(folder: Path, path: Any = "in", on_error: Any = "fail", engine: Any = "local", **options: Any) -> Any:
    """Copy the rows of files; those that could not be read go to a folder of their own."""
    if engine == "local":
        options.setdefault("options", ps.LocalOptions(save_every="0 s"))
    reading = {name: options.pop(name) for name in ("batch", "files", "follow") if name in options}
    graph = ps.PipeGraph("copying")
    reader = ps.read.jsonl(f"{folder}/{path}", schema={"v": int}, **reading)
    rows = graph.source(reader, name="rows", on_error=on_error)
    rows.sink(ps.write.jsonl(folder / "out"), name="out")
    if on_error == "dead_letter":
        rows.errors.sink(ps.write.jsonl(folder / "errors"), name="errors")
    return graph.run(engine, checkpoint=str(folder / "checkpoint"), **{"drain": False, **options})


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


def read_output(folder: Path) -> list[int]:
    return sorted(row["v"] for row in rows_in(folder / "out"))
