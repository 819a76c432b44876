"""Groups that Spark made of a chain's rows, as the parts that windows take: what is left to do in a worker.

Groups travel beside wire rows, over the same exchange, in columns of their own behind those of the wire. Rows
of other fates than to be in a window were grouped by their fate, and are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines.spark.types import from_spark
from penstock.frozen import dataclass
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Batch, Ints

_NOTHING = -(2**63)
"""What registers of extremes keep of no values."""


@dataclass(frozen=True, slots=True)
class GroupForm:
    """How the groups of one chain become parts.

    source   whose rows they are of
    edge     the edge of the parts
    step     the windows that take them
    schema   of parts
    key      their key columns
    columns  of each column of parts behind the watermark: that of the group, and whether it has floats to be
             put in order, for the greatest (1) or the least (-1)
    n_kinds  of windows
    """

    source: str
    edge: int
    step: str
    schema: pa.Schema
    key: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    n_kinds: int


@dataclass(frozen=True, slots=True)
class Grouped:
    """The parts of one round, and the fates of its rows as they are told to the driver."""

    round: int
    parts: Batch
    told: dict[str, Any]


def apart(batch: pa.RecordBatch, form: GroupForm) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The wire rows of a batch, and the groups."""
    mine = pc.and_(pc.equal(batch.column("edge"), form.edge), pc.is_null(batch.column("body")))
    return batch.filter(pc.invert(mine)), batch.filter(mine)


def grouped(groups: pa.RecordBatch, form: GroupForm) -> Iterator[Grouped]:
    """The groups round by round."""
    rounds = groups.column("round").to_numpy(zero_copy_only=False)
    for number in np.unique(rounds).tolist():
        mine = groups.filter(pa.array(rounds == number))
        fates = _numbers(mine, "fate")
        living = mine.filter(pa.array(fates == 0))
        yield Grouped(number, _parts(living, form), _told(mine, fates, form))


def _told(groups: pa.RecordBatch, fates: Ints, form: GroupForm) -> dict[str, Any]:
    """How many rows had each fate, and how many windows of each kind those missed that came to them."""
    rows, came = _numbers(groups, "r0_0"), fates <= 0
    return {
        "source": form.source,
        "fates": {str(fate): int(rows[fates == fate].sum()) for fate in np.unique(fates).tolist()},
        "missed": {
            str(kind): int(_numbers(groups, f"missed{kind}")[came].sum()) for kind in range(form.n_kinds)
        },
    }


def _parts(groups: pa.RecordBatch, form: GroupForm) -> Batch:
    n, starts = groups.num_rows, _numbers(groups, "start")
    keys = pa.schema([form.schema.field(name) for name in form.key])
    columns = [*from_spark(groups.select(list(form.key)), keys).columns] if form.key else []
    columns += [pa.array(np.zeros(n, np.int64)), pa.array(starts), groups.column("judged")]
    for name, order in form.columns:
        found = groups.column(name)
        columns.append(_ordered(found, order) if order else found)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=form.schema), starts)


def _numbers(groups: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(groups.column(name).to_numpy(zero_copy_only=False), np.int64)


def _ordered(extremes: pa.Array, order: int) -> pa.Array:
    """Floats as the integers that registers keep of them; the least one as its complement."""
    from penstock.kernels.windows.accumulate import encode_floats

    floats = np.ascontiguousarray(extremes.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    kept = np.empty(len(floats), np.int64)
    JitPolicy()(encode_floats, floats.view(np.int64), kept)
    kept = ~kept if order < 0 else kept
    return pa.array(np.where(extremes.is_valid().to_numpy(zero_copy_only=False), kept, _NOTHING))
