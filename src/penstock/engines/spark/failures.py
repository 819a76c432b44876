"""What Spark itself raises, in one line; failures of steps come as data (`engines/wire.py`)."""

from __future__ import annotations

import re

from penstock.errors import EngineError
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.op import Op
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Split
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan

_DIED = re.compile(r"Python worker (process )?(exited|crashed|terminated)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


def translate_failure(failure: BaseException, plan: Plan) -> BaseException:
    """Returns what Spark raised as an error of ours; everything else as it is."""
    if not type(failure).__module__.startswith(("pyspark", "py4j")):
        return failure
    reasons = re.findall(r"^(?:Caused by: |: )?([\w.$]*(?:Exception|Error): .+)", str(failure), re.MULTILINE)
    missing = _MISSING.search(str(failure))
    if _DIED.search(str(failure)):
        error = _worker_died(plan)
    elif missing is not None:
        error = EngineError(
            f'a Python worker of Spark cannot import "{missing[1]}"',
            detail="functions of the graph need it where the workers run",
            hint="install it there, or send it with a session of yours, SparkOptions(session=…): "
            f'session.addArtifacts("{missing[1].partition(".")[0]}.zip", pyfile=True)',
        )
    else:
        error = EngineError("Spark failed to run a batch", detail=[str(failure)[:500], *reasons][-1])
    error.__cause__ = failure
    return error


def _worker_died(plan: Plan) -> EngineError:
    """Returns the error for a worker that died: only users' functions can have ended it."""
    steps = [step for step in plan if _runs_python(step.op)]
    names = ", ".join(f'"{step.name}"' for step in steps)
    return EngineError(
        "a Python worker of Spark died, and died again whenever Spark tried once more",
        step=steps[0].name if len(steps) == 1 else None,
        where=steps[0].where if len(steps) == 1 else None,
        detail=f"steps with Python functions: {names}" if names else "no step has a Python function",
        hint="look for os._exit, a crash in native code, or too little memory for a worker; "
        'engine="reference" runs the functions in this process',
    )


def _runs_python(op: Op) -> bool:
    """Return whether a step calls a function of the user's."""
    if isinstance(op, Windows):
        return op.function is not None
    if not isinstance(op, Map | Filter | FlatMap | Accumulate | Split):
        return False
    return isinstance(op.how, BatchFunction | RowFunction)
