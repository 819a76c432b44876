"""Which window steps a CUDA device can take, and how windows are combined from slices.

Devices hold the slices of time windows, as accumulators. Whether there is a device is for the stage to find
out, where it runs (`stages/window/groups.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import GraphError, NotSupported, nearest_first
from penstock.operators.aggregates import Fold
from penstock.operators.choices.accumulators import why_rows
from penstock.operators.stream import Stream
from penstock.operators.window_specs import SlidingSpec
from penstock.options import Cuda

if TYPE_CHECKING:
    from penstock.operators.windows import Windows

AUTO, CPU, CUDA = DEVICES = ("auto", "cpu", "cuda")
AS_PARTIALS = ("paned", "map_reduce")


def check_device(device: str | Cuda) -> None:
    """Raise a GraphError unless it is a device or the name of one."""
    if not isinstance(device, Cuda) and device not in DEVICES:
        names = nearest_first(str(device), DEVICES)
        raise GraphError(
            f"device={device!r} is unknown",
            detail=f"the devices are {', '.join(names)}",
            hint=f'say device="{names[0]}"',
        )


def on_cuda(op: Windows) -> bool:
    """Return whether a CUDA device was asked for, by name or with limits."""
    return op.device == CUDA or isinstance(op.device, Cuda)


def device_refusal(op: Windows, up: Stream, *, totally_ordered: bool = True) -> NotSupported | None:
    """Return the error for a step that is to run on a device and cannot."""
    why = why_not_cuda(op, up, totally_ordered=totally_ordered) if on_cuda(op) else None
    if why is None:
        return None
    return NotSupported(
        f'device="cuda" was asked for, but {why}',
        detail="a device holds tumbling and sliding windows, of aggregates that are a few numbers",
        hint='say device="auto", or give such windows and aggregates a step of their own',
    )


def why_not_cuda(op: Windows, up: Stream, *, totally_ordered: bool) -> str | None:
    """Return why a step cannot run on a device; None when it can."""
    unsliced = [str(spec) for _, spec in op.specs() if not isinstance(spec, SlidingSpec)]
    if unsliced:
        return f"{unsliced[0]} is not made of slices of time"
    if op.function is not None:
        return f"rows are kept for {op.function}, which sees whole windows"
    if op.pattern in AS_PARTIALS:
        return f"{op.pattern} windows are merged from partials"
    for name, aggregate in (op.aggregates or {}).items():
        why = why_rows(aggregate, up, totally_ordered=totally_ordered)
        if why is not None:
            return f"{name}={aggregate} needs more than accumulators: {why}"
    return None


def why_not_by_itself(op: Windows) -> str | None:
    """Return why "auto" leaves a step to the cpu that a device could take; None when it does not."""
    folds = [str(fold) for fold in (op.aggregates or {}).values() if isinstance(fold, Fold)]
    # Why: kernels cannot raise. A combine that fails would return a number there, and stops the run here.
    return f"a device cannot tell when {folds[0]} fails" if folds else None


def explain_method(longest: int, *, exact: bool) -> str:
    """Explain how windows of up to `longest` slices are combined; `exact` sums can be subtracted again.

    A window of one slice needs nothing. Exact sums are kept as running sums, and what lies before a window is
    subtracted; everything else goes over two stacks (*sweep*). Where few windows close at once the B-PAT of
    SPRINGALD (IV-B) does less than either: a stage chooses at every watermark, and the answer is the same.
    """
    if longest == 1:
        return "direct: a window is one slice, and needs no tree"
    many = "subtract: running sums are exact"
    if not exact:
        many = "sweep: two stacks, because what was added cannot be taken away exactly"
    return f"{many}; B-PAT when few windows close at once, for a logarithm of {longest} slices each"
