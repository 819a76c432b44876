"""WindFlow's four windowed patterns as decompositions of one stage: the same answer, spread differently."""

from typing import TYPE_CHECKING

from penstock.deferred import defer

if TYPE_CHECKING:
    from penstock.stages.patterns.dealing import Deal as Deal
    from penstock.stages.patterns.parts import PARTS as PARTS
    from penstock.stages.patterns.parts import PartFormat as PartFormat
    from penstock.stages.patterns.pattern import Pattern as Pattern
    from penstock.stages.patterns.pattern import decompose as decompose

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.stages.patterns.dealing": "Deal",
            "penstock.stages.patterns.parts": "PARTS PartFormat",
            "penstock.stages.patterns.pattern": "Pattern decompose",
        },
    )
