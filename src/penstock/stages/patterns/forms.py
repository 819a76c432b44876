"""Converts saved windows from one form to another: by key, or by virtual partition.

Which form state has depends on the pattern, and `pattern="auto"` chooses that by the number of replicas; on
Spark it is always by key. Both forms hold the same slices and rows, only split differently, so that a restart
can go on from either: one replica that has all windows loads the one and saves the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import CheckpointError
from penstock.operators.choices.patterns import MAP_REDUCE, PARALLEL, as_pattern
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.patterns.parallel import ParallelStage
from penstock.stages.patterns.partitioners import WindowPartitioner
from penstock.stages.snapshot import (
    AS_PARTIALS,
    BY_PARTITION,
    FORM,
    decode_bucket,
    encode_bucket,
    read_fingerprint,
    window_fingerprint,
)
from penstock.stages.stage import Site
from penstock.timing.windows import TimeWindow

Pieces = Mapping[int, bytes]


def form_of(piece: bytes, step: str) -> str:
    """Return the form that a piece of saved windows has."""
    return read_fingerprint(piece, step)[FORM]


def convert_state(
    saved: Pieces, form: str, op: Windows, up: Stream, site: Site, *, totally_ordered: bool = False
) -> Pieces:
    """Return all pieces of a step in another form; partials of whole windows have no other."""
    before = form_of(next(iter(saved.values())), site.step) if saved else form
    if before == form:
        return saved
    if AS_PARTIALS in (before, form):
        raise _conversion_refusal(before, form, site)
    windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
    partitioner = WindowPartitioner(windows, up.schema, up.key, 1)
    whole = ParallelStage(as_pattern(PARALLEL, op), up, site, partitioner, 0, totally_ordered=totally_ordered)
    old, new = (window_fingerprint(op, up, totally_ordered=totally_ordered, form=f) for f in (before, form))
    whole.load_pieces([decode_bucket(data, site.step, old) for data in saved.values()])
    if form == BY_PARTITION:
        return whole.snapshot()
    return {bucket: encode_bucket(piece, site.step, new) for bucket, piece in whole.export_buckets().items()}


def _conversion_refusal(before: str, form: str, site: Site) -> CheckpointError:
    pattern = f'pattern="{MAP_REDUCE}"'
    if before == AS_PARTIALS:
        hint = f'say {pattern} and run it with engine="local", as it was saved'
    else:
        hint = f'leave {pattern} out, as it was saved: pattern="auto" takes it up'
    return CheckpointError(
        f'step "{site.step}" was saved as {before}, and is now to be kept as {form}',
        step=site.step,
        where=site.where,
        detail=f"{AS_PARTIALS}: overlapping windows are saved as totals, without their slices",
        hint=f"{hint}; or start with an empty checkpoint folder",
    )
