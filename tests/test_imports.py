"""What `import penstock`, building a graph and a small run load, seen from a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "pyspark",
    "numba",
    "pandas",
    "polars",
    "typer",
    "rich",
    "hypothesis",
    "pytest",
    "datasketches",
    "numpy.ma",
    "pyarrow.compute",
    "importlib.metadata",
    "penstock.blocks",
    "penstock.connect.readers.csv",
    "penstock.engines.local.processes.worker",
    "penstock.operators.stream_join",
    "penstock.engines.local.elastic.controller",
    "penstock.engines.checkpoint.checkpoint",
    "difflib",
    "penstock.engines.local.elastic.rescale",
)
BUILT = """
import json, sys
import penstock as ps
imported = list(sys.modules)
graph = ps.PipeGraph("shop")
pipe = graph.source(
    ps.read.rows([{"n": n, "item": "tea" if n % 2 else "rye", "price": 0.5 * n} for n in range(20)]),
    time="n", time_unit="s", delay="0 s",
)
out = ps.write.memory()
pipe = pipe.filter(ps.col("n") > 3).key_by("item").window(ps.tumbling("8 s"))
pipe.aggregate(n=ps.count(), price=ps.sum("price")).sink(out)
built = list(sys.modules)
"""
RUN = """
graph.run(engine="local")
assert len(out.rows()) == 6, out.rows()
"""
REPORT = "print(json.dumps({'imported': imported, 'built': built, 'later': list(sys.modules)}))"
EVERY = """
missing = [name for name in dir(ps) if getattr(ps, name, None) is None]
assert set(missing) <= {"__doc__", "__spec__", "__loader__", "__path__", "__file__"}, missing
"""


def loaded_modules(*program: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(program)], capture_output=True, text=True, check=True
    )
    modules: dict[str, list[str]] = json.loads(done.stdout)
    return modules


def test_importing_penstock_loads_none_of_the_libraries() -> None:
    assert not {"numpy", "pyarrow", *HEAVY} & set(loaded_modules(BUILT, REPORT)["imported"])


def test_building_a_graph_loads_no_engine_and_no_tool() -> None:
    built = loaded_modules(BUILT, REPORT)["built"]
    assert not set(HEAVY) & set(built)
    assert not [name for name in built if name.startswith("penstock.engines.local")]


@pytest.mark.parametrize("window", ['ps.session("1 s")', "ps.count_window(2)", 'ps.sliding("8 s", "2 s")'])
def test_no_kind_of_window_loads_a_library_for_a_small_run(window: str) -> None:
    other = BUILT.replace('ps.tumbling("8 s")', window)
    later = loaded_modules(other, 'graph.run(engine="local")', REPORT)["later"]
    assert not {"pandas", "numba", "datasketches"} & set(later)


@pytest.mark.parametrize(
    ("read", "line"),
    [("text(folder)", "hello"), ("jsonl(folder)", '{"v": 1}'), ("csv(folder)", "v\n1")],
)
def test_a_small_run_on_a_file_loads_no_library(tmp_path: Path, read: str, line: str) -> None:
    (tmp_path / "rows.txt").write_text(line + "\n")
    program = f"""
import json, sys
import penstock as ps
folder = {str(tmp_path)!r}
graph = ps.PipeGraph("file")
out = ps.write.memory()
graph.source(ps.read.{read}).sink(out)
graph.run(engine="local")
assert len(out.rows()) == 1, out.rows()
print(json.dumps({{"later": list(sys.modules)}}))
"""
    assert not {"pandas", "numba", "numpy.ma"} & set(loaded_modules(program)["later"])


def test_a_small_run_loads_nothing_that_it_does_not_need() -> None:
    assert not set(HEAVY) & set(loaded_modules(BUILT, RUN, REPORT)["later"])


def test_every_public_name_can_be_had_without_an_engine_or_a_tool() -> None:
    later = loaded_modules(BUILT, EVERY, REPORT)["later"]
    tools = {"pyspark", "numba", "pandas", "polars", "typer", "rich", "hypothesis", "pytest"}
    assert not tools & set(later)


RESTART = """
import json, sys
import penstock as ps
graph = ps.PipeGraph("totals")
rows = graph.source(ps.read.jsonl(sys.argv[1] + "/in", schema={"k": int, "v": int}))
keyed = rows.key_by("k")
totals = keyed.accumulate(lambda row, total: total + row.v, 0, schema={"total": int}, name="totals")
totals.sink(ps.write.jsonl(sys.argv[1] + "/out"), name="out")
graph.run("local", checkpoint=sys.argv[1] + "/checkpoint")
print(json.dumps(list(sys.modules)))
"""


def test_a_restart_with_many_keys_loads_no_library_for_a_few_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, n_rows in enumerate((5_000, 10)):
        lines = [json.dumps({"k": key, "v": key}) + "\n" for key in range(n_rows)]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(lines))
        done = subprocess.run(
            [sys.executable, "-c", RESTART, str(tmp_path)], capture_output=True, text=True, check=True
        )
        modules = set(json.loads(done.stdout))
    assert not {"pandas", "numba"} & modules
    written = [path.read_text().splitlines() for path in (tmp_path / "out").glob("*.jsonl")]
    totals = sorted(json.loads(line)["total"] for lines in written for line in lines)
    assert totals == sorted([*range(5_000), *(2 * key for key in range(10))])


def test_the_command_line_loads_no_application_and_no_rows_before_a_command_runs() -> None:
    report = 'import json, sys\nimport penstock.cli.main\nprint(json.dumps({"loaded": list(sys.modules)}))'
    loaded = loaded_modules(report)["loaded"]
    assert not {"pyarrow", "numpy", "penstock.apps", "rich.syntax", "penstock.cli.comparison"} & set(loaded)
