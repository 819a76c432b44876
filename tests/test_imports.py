"""What `import penstock` loads, seen from a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

# pandas is left out after building: pyarrow itself looks for it as soon as it makes an array.
HEAVY = ("pyspark", "numba", "pandas", "polars", "typer", "rich", "hypothesis", "pytest", "starlette")
PROBE = """
import json, sys
import penstock as ps
loaded = sorted({name.partition(".")[0] for name in sys.modules})
missing = [name for name in dir(ps) if getattr(ps, name, None) is None]
graph = ps.PipeGraph("shop")
graph.source(ps.read.rows([{"n": 1}])).filter(ps.col("n") > 0).sink(ps.write.memory())
graph.blocks()
later = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"loaded": loaded, "missing": missing, "later": later}))
"""


def probe() -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=True
    )
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


def test_importing_penstock_and_building_a_graph_loads_no_engine_and_no_tool() -> None:
    told = probe()
    assert "pyarrow" in told["loaded"]
    assert not set(HEAVY) & set(told["loaded"])
    assert set(HEAVY) & set(told["later"]) <= {"pandas"}
    assert set(told["missing"]) <= {"__doc__", "__spec__", "__loader__", "__path__", "__file__"}
