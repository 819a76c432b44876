"""Where the accumulators of a window step are kept: in main memory, or on a CUDA device.

Decided when the stage is built, because only then is it known which machine it runs on. A step with
device="auto" never fails because there is no device; a step that asks for one never runs without. This is the
only seam to CUDA: `cuda_store.py` is imported for stages that have found a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import NotSupported, PenstockError
from penstock.frozen import dataclass
from penstock.kernels.cuda.device import Device, choose_device, explain_auto_cpu
from penstock.kernels.windows.accumulate import Rule
from penstock.operators.choices.device import (
    AUTO,
    CUDA,
    device_refusal,
    on_cuda,
    why_not_by_itself,
    why_not_cuda,
)
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.options import Cuda
from penstock.stages.stage import Site
from penstock.stages.window.time_store import TimeStore


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, and why it was chosen."""

    device: Device
    why: str

    def __str__(self) -> str:
        return f"device: {self.device}, because {self.why}"


def choose_placement(
    op: Windows, up: Stream, site: Site, *, totally_ordered: bool, folds: Sequence[Rule] = ()
) -> Placement:
    """Choose the device of a step; `folds` are the rules of users' combines."""
    refusal = device_refusal(op, up, totally_ordered=totally_ordered)
    if refusal is not None:
        raise refusal.at(site.step, site.where)
    if op.device != AUTO:
        try:
            device = choose_device(CUDA if on_cuda(op) else str(op.device))
            if device == "cuda":
                _check_folds(folds)
        except PenstockError as error:
            raise error.at(site.step, site.where) from None
        return Placement(device, "it was asked for by name")
    reason = (
        why_not_cuda(op, up, totally_ordered=totally_ordered) or why_not_by_itself(op) or explain_auto_cpu()
    )
    if reason is not None:
        return Placement("cpu", reason)
    return Placement("cuda", "there is a CUDA device, and it can hold all accumulators of the step")


def _check_folds(folds: Sequence[Rule]) -> None:
    for rule in folds:
        reason = _why_not_compiled(rule)
        if reason is not None:
            raise NotSupported(
                f"numba cannot compile {rule.name} for a CUDA device",
                detail=reason,
                hint='say device="cpu", or write combine with numbers and tuples only',
            )


def _why_not_compiled(rule: Rule) -> str | None:
    from penstock.kernels.cuda.accumulators import explain_rule_refusal

    return explain_rule_refusal(rule)


def time_store_factory(device: Device, asked: str | Cuda) -> Callable[..., TimeStore]:
    """Return what builds the store of time windows for a device."""
    if device == "cpu":
        return TimeStore
    from penstock.stages.window.cuda_store import CudaStore

    limits = asked if isinstance(asked, Cuda) else Cuda()
    return partial(CudaStore, **limits.limits())
