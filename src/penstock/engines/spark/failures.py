"""Failures as data: what stopped a step on a worker reaches the driver as the error it was.

An exception that crosses from a Python worker through the JVM arrives as text; a row with its parts keeps
the class, the step, the user's line and the hint. What Spark itself raises is told in one line.
"""

from __future__ import annotations

import builtins
import re
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock import errors
from penstock.errors import EngineError, PenstockError, Where
from penstock.operators.function import BatchFunction, RowFunction
from penstock.plan.plan import Plan

_DIED = re.compile(r"Python worker (process )?(exited|crashed|terminated)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_CODE = (BatchFunction, RowFunction)
_KNOWN = {name: each for name, each in vars(errors).items() if isinstance(each, type)}


def as_data(failure: Exception, order: int) -> dict[str, Any]:
    """A failure as plain data; of several in one round the one of the least `order` is told."""
    if not isinstance(failure, PenstockError):
        lines = traceback.format_exception(failure)
        detail = "".join(lines).strip()
        failure = EngineError(f"a worker failed: {type(failure).__name__}", detail=detail)
    where = failure.where
    cause = failure.__cause__
    return {
        "error": type(failure).__name__,
        "fact": failure.fact,
        "step": failure.step,
        "where": None if where is None else [where.file, where.line],
        "detail": failure.detail,
        "hint": failure.hint,
        "cause": None if cause is None else [type(cause).__name__, _text(cause)],
        "order": order,
    }


def as_error(told: Mapping[str, Any]) -> PenstockError:
    """The failure back, to be raised here."""
    kind = _KNOWN.get(told["error"], EngineError)
    where = None if told["where"] is None else Where(*told["where"])
    failure: PenstockError = kind(
        told["fact"], step=told["step"], where=where, detail=told["detail"], hint=told["hint"]
    )
    if told["cause"] is not None:
        failure.__cause__ = _cause(*told["cause"])
    return failure


def from_spark(failure: BaseException, plan: Plan) -> BaseException:
    """What Spark raised, as an error of ours; everything else as it is."""
    if not type(failure).__module__.startswith(("pyspark", "py4j")):
        return failure
    reasons = re.findall(r"^(?:Caused by: |: )?([\w.$]*(?:Exception|Error): .+)", str(failure), re.MULTILINE)
    missing = _MISSING.search(str(failure))
    if _DIED.search(str(failure)):
        told = _worker_died(plan)
    elif missing is not None:
        told = EngineError(
            f'a Python worker of Spark cannot import "{missing[1]}"',
            detail="functions of the graph need it where the workers run",
            hint="install it there, or send it with a session of yours, SparkOptions(session=…): "
            f'session.addArtifacts("{missing[1].partition(".")[0]}.zip", pyfile=True)',
        )
    else:
        told = EngineError("Spark failed to run a batch", detail=[str(failure)[:500], *reasons][-1])
    told.__cause__ = failure
    return told


def _worker_died(plan: Plan) -> EngineError:
    """A process that ends cannot say where it was; only the users' functions can have ended it."""
    steps = [step for step in plan if isinstance(getattr(step.op, "function", None), _CODE)]
    names = ", ".join(f'"{step.name}"' for step in steps)
    return EngineError(
        "a Python worker of Spark died, and died again whenever Spark tried once more",
        step=steps[0].name if len(steps) == 1 else None,
        where=steps[0].where if len(steps) == 1 else None,
        detail=f"steps with Python functions: {names}" if names else "no step has a Python function",
        hint="look for os._exit, a crash in native code, or too little memory for a worker; "
        'engine="reference" runs the functions in this process',
    )


def _text(cause: BaseException) -> str:
    """What the user's exception says, even if it cannot."""
    try:
        return str(cause.args[0]) if len(cause.args) == 1 else str(cause)
    except Exception as worse:
        return f"(its text cannot be shown: {type(worse).__name__})"


def _cause(name: str, text: str) -> BaseException:
    """What the user's function raised: the same exception if it is one of Python's, else by its name."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        with suppress(TypeError):  # a few want more than a text
            return known(text)
    return RuntimeError(f"{name}: {text}" if text else name)
