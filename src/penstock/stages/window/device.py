"""Where the registers of a window step are kept: in main memory, or on a CUDA device.

Decided when the stage is made, because only then is known which machine it runs on. A step that is left to
itself never fails for want of a device; a step that asks for one never runs without.
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
    """A device, and why, for explain()."""

    device: Device
    why: str

    def __str__(self) -> str:
        return f"device: {self.device}, because {self.why}"


def choose_placement(
    op: Windows, up: Stream, site: Site, *, totally_ordered: bool, folds: Sequence[Rule] = ()
) -> Placement:
    """Choose the device of a step; `folds` are the rules of users' combines."""
    error = device_refusal(op, up, totally_ordered=totally_ordered)
    if error is not None:
        raise error.at(site.step, site.where)
    if op.device != AUTO:
        try:
            chosen = choose_device(CUDA if on_cuda(op) else str(op.device))
            if chosen == "cuda":
                _check_folds(folds)
        except PenstockError as wrong:
            raise wrong.at(site.step, site.where) from None
        return Placement(chosen, "it was asked for by name")
    lacking = (
        why_not_cuda(op, up, totally_ordered=totally_ordered) or why_not_by_itself(op) or explain_auto_cpu()
    )
    if lacking is not None:
        return Placement("cpu", lacking)
    return Placement("cuda", "there is a CUDA device, and it can hold all registers of the step")


def _check_folds(folds: Sequence[Rule]) -> None:
    for rule in folds:
        why = _why_not_compiled(rule)
        if why is not None:
            raise NotSupported(
                f"numba cannot compile {rule.name} for a CUDA device",
                detail=why,
                hint='say device="cpu", or write combine with numbers and tuples only',
            )


def _why_not_compiled(rule: Rule) -> str | None:
    from penstock.kernels.cuda.accumulators import explain_rule_refusal

    return explain_rule_refusal(rule)


def store_factory(device: Device, asked: str | Cuda) -> Callable[..., TimeStore]:
    """What makes the store of slices for a device. Numba's part for CUDA is loaded for a device only."""
    if device == "cpu":
        return TimeStore
    from penstock.stages.window.cuda_store import CudaStore

    limits = asked if isinstance(asked, Cuda) else Cuda()
    return partial(CudaStore, **limits.limits())
