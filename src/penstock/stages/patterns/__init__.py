"""WindFlow's four windowed patterns as decompositions of one stage: the same answer, spread differently."""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.stages.patterns.partial_stores import PARTIALS as PARTIALS
    from penstock.stages.patterns.partial_stores import PartialFormat as PartialFormat
    from penstock.stages.patterns.partitioners import Partitioner as Partitioner
    from penstock.stages.patterns.pattern import Pattern as Pattern
    from penstock.stages.patterns.pattern import decompose as decompose

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.stages.patterns.partitioners": "Partitioner",
            "penstock.stages.patterns.partial_stores": "PARTIALS PartialFormat",
            "penstock.stages.patterns.pattern": "Pattern decompose",
        },
    )
