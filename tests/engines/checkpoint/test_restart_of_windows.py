"""Windows that go on from a checkpoint: with another number of replicas, spread otherwise, on another engine.

`pattern="auto"` chooses by the number of replicas, so state must go from every pattern that it chooses to
every other. The Spark engine's fragments run in this process: nothing here depends on who carries them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.writers.staged_files import seal, unseal
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import FORMAT, describe_graph
from penstock.events import Event, StateSaved
from penstock.stages.patterns.parallel import form_of
from penstock.stages.snapshot import BY_PARTITION
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
BATCHES = [[{"t": 3 * i + j, "k": (i + j) % 5, "v": i * j} for j in range(3)] for i in range(10)]
OPTIONS = ps.LocalOptions(save_every="0 s", queue_size=2, seed=3)
ENGINES: dict[str, Callable[[], Any]] = {"local": lambda: "local", "fragments": InProcessSparkEngine}
ALL: dict[str, Callable[[], Any]] = {**ENGINES, "spark": lambda: "spark"}
DEGREES = [(1, 3), (3, 1), (3, 2)]


def join_values(rows: list[Any]) -> dict[str, object]:
    """What a window's rows are, in order."""
    return {"told": " ".join(str(row.v) for row in rows)}


def then(a: str, b: str) -> str:
    """One behind the other."""
    return a + b


MAKES: dict[str, Callable[[Any], ps.MultiPipe]] = {
    "sum": lambda w: w.aggregate(s=ps.sum("v"), n=ps.count(), m=ps.max("v")),
    "apply": lambda w: w.apply(join_values, schema={"told": str}),
    "collect": lambda w: w.aggregate(all=ps.collect("v"), n=ps.count()),
    "ends": lambda w: w.aggregate(first=ps.first("v"), last=ps.last("v")),
    "fold": lambda w: w.aggregate(
        text=ps.fold(lambda row: f"{row['v']} ", then, "", type="string", commutative=False)
    ),
    "python fold": lambda w: w.aggregate(
        most=ps.fold(lambda row: str(row["v"]), max, "", columns="v", type="string")
    ),
    "sketch": lambda w: w.aggregate(different=ps.approx_distinct("v")),
}
SOME = [pytest.param(make, marks=() if make == "apply" else pytest.mark.slow) for make in MAKES]
KINDS = {"tumbling": ps.tumbling("8 s"), "sliding": ps.sliding("8 s", every="3 s")}


def graph_of(
    folder: Path, make: str, kind: str, degree: int, *, key: bool = False, pattern: Any = "auto"
) -> ps.PipeGraph:
    """Windows in so many replicas."""
    graph = ps.PipeGraph("windows")
    reader = ps.read.batches(BATCHES, schema=SCHEMA)
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="r")
    rows = rows.key_by("k") if key else rows
    windows = rows.window(KINDS[kind], lateness="1 s", name="w", parallelism=degree, pattern=pattern)
    MAKES[make](windows).sink(ps.write.jsonl(folder / "out"), name="out")
    return graph


def run(graph: ps.PipeGraph, folder: Path, engine: str, **options: Any) -> Any:
    """Begin, or go on."""
    if engine == "local":
        options["options"] = OPTIONS
    return graph.run(ALL[engine](), checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


def read_output(folder: Path) -> Counter[str]:
    """Every row that was written."""
    return Counter(
        line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "degrees"),
    [(make, degrees) for make in MAKES for degrees in (DEGREES if make in ("sum", "apply") else DEGREES[:1])],
)
@pytest.mark.parametrize(
    "engines", [("local", "local"), ("fragments", "fragments"), ("local", "fragments")], ids="-".join
)
def test_any_number_of_replicas_goes_on_from_what_auto_chose_for_another(
    tmp_path: Path, make: str, engines: tuple[str, str], degrees: tuple[int, int]
) -> None:
    for kind, until in (("tumbling", 1), ("sliding", 5)):
        folder = tmp_path / kind
        graph_of(folder / "whole", make, kind, 1).run("reference")
        begun = run(graph_of(folder, make, kind, degrees[0]), folder, engines[0], until=until)
        again = run(graph_of(folder, make, kind, degrees[1]), folder, engines[1], until=2)
        ended = run(graph_of(folder, make, kind, degrees[0]), folder, engines[0])
        assert (begun.outcome, again.batches, ended.outcome) == ("stopped", 2, "drained")
        assert read_output(folder) == read_output(folder / "whole")


@pytest.mark.slow
def test_so_do_workers_of_spark(tmp_path: Path) -> None:
    graph_of(tmp_path / "whole", "sum", "sliding", 1).run("reference")
    for engine, degree, until in (("local", 3, 2), ("spark", 1, 2), ("spark", 3, 2), ("local", 2, None)):
        run(graph_of(tmp_path, "sum", "sliding", degree), tmp_path, engine, until=until)
    assert read_output(tmp_path) == read_output(tmp_path / "whole")


@pytest.mark.parametrize("make", SOME)
def test_with_a_key_too(tmp_path: Path, make: str) -> None:
    graph_of(tmp_path / "whole", make, "sliding", 1, key=True).run("reference")
    for number, (pattern, engines) in enumerate(
        [
            ("auto", ["local"] * 3),
            ("parallel", ["local", "fragments", "local"]),
            ("auto", ["fragments", "local", "fragments"]),
        ]
    ):
        folder = tmp_path / str(number)
        for engine, degree, until in zip(engines, (3, 1, 4), (2, 4, None), strict=True):
            chosen = pattern if degree > 1 else "auto"
            run(
                graph_of(folder, make, "sliding", degree, key=True, pattern=chosen),
                folder,
                engine,
                until=until,
            )
        assert read_output(folder) == read_output(tmp_path / "whole")


def test_only_pieces_of_the_new_form_are_named_from_then_on(tmp_path: Path) -> None:
    def forms(degree: int) -> set[str]:
        run(graph_of(tmp_path, "apply", "sliding", degree), tmp_path, "local", until=2)
        checkpoint = Checkpoint(
            str(tmp_path / "checkpoint"), describe_graph(graph_of(tmp_path, "apply", "sliding", 1).plan())
        )
        pieces = checkpoint.files.read(checkpoint.latest_manifest().state["w"], "w")
        checkpoint.close()
        return {form_of(piece, "w") for piece in pieces.values()}

    assert forms(3) == {BY_PARTITION}
    assert forms(1) == {"windows by key"}
    assert forms(2) == {BY_PARTITION}


@pytest.mark.parametrize("who", ENGINES)
def test_map_reduce_windows_go_on_by_key_on_any_engine(tmp_path: Path, who: str) -> None:
    run(graph_of(tmp_path, "sum", "sliding", 3, pattern="map_reduce"), tmp_path, "local", until=3)
    run(graph_of(tmp_path, "sum", "sliding", 3), tmp_path, who)
    graph_of(tmp_path / "whole", "sum", "sliding", 1).run("reference")
    assert read_output(tmp_path) == read_output(tmp_path / "whole")


@pytest.mark.parametrize("who", ENGINES)
@pytest.mark.parametrize(
    ("version", "hint"), [(2, "start with an empty checkpoint folder"), (FORMAT + 1, "or a newer one")]
)
def test_a_checkpoint_of_another_format_is_refused_by_its_number(
    tmp_path: Path, who: str, version: int, hint: str
) -> None:
    run(graph_of(tmp_path, "apply", "sliding", 3), tmp_path, who, until=4)
    _rewrite(tmp_path / "checkpoint" / "penstock.json", lambda graph: graph.update(format=version))
    refusal = f"the checkpoint has format {version}, and this Penstock reads {FORMAT - 1} and {FORMAT}"
    with pytest.raises(ps.CheckpointError, match=refusal) as refused:
        run(graph_of(tmp_path, "apply", "sliding", 1), tmp_path, who)
    assert hint in str(refused.value.hint)


def _rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a file of a checkpoint, and its checksum."""
    contents, _ = unseal(path.read_text())
    change(contents)
    path.write_text(seal(contents))


@pytest.mark.parametrize("who", ENGINES)
def test_what_is_kept_is_told_and_is_no_more_than_the_open_slices(tmp_path: Path, who: str) -> None:
    heard: list[Event] = []
    for _ in range(8):
        run(graph_of(tmp_path, "sum", "sliding", 2, key=True), tmp_path, who, until=1, events=heard.append)
    saved = [event for event in heard if isinstance(event, StateSaved)]
    assert len(saved) >= 8
    assert all(event.kept_nbytes > 0 for event in saved)
    # A window of 8 s every 3 s has slices of 1 s and 2 s, and two windows behind the watermark none.
    assert max(event.kept_rows for event in saved) <= 3 * 8
    assert all(event.kept_rows >= 3 for event in saved)


@pytest.mark.parametrize("who", ENGINES)
def test_nothing_is_kept_once_all_windows_have_left(tmp_path: Path, who: str) -> None:
    heard: list[Event] = []
    for until in (5, None):
        graph = graph_of(tmp_path, "apply", "tumbling", 2)
        run(graph, tmp_path, who, events=heard.append, until=until)
    saved = [event for event in heard if isinstance(event, StateSaved)]
    assert saved[-2].kept_rows > 0
    assert saved[-1].kept_rows == 0
