"""WindFlow's four windowed patterns as decompositions of one stage: the same answer, spread differently."""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.stages.patterns.partial_stores import PARTS as PARTS
    from penstock.stages.patterns.partial_stores import PartFormat as PartFormat
    from penstock.stages.patterns.partitioners import Deal as Deal
    from penstock.stages.patterns.pattern import Pattern as Pattern
    from penstock.stages.patterns.pattern import decompose as decompose

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.stages.patterns.partitioners": "Deal",
            "penstock.stages.patterns.partial_stores": "PARTS PartFormat",
            "penstock.stages.patterns.pattern": "Pattern decompose",
        },
    )
