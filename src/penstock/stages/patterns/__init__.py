"""WindFlow's four windowed patterns as decompositions of one stage: the same answer, spread differently."""

from penstock.stages.patterns.dealing import Deal
from penstock.stages.patterns.parts import PARTS, PartFormat
from penstock.stages.patterns.pattern import Pattern, decompose

__all__ = ["PARTS", "Deal", "PartFormat", "Pattern", "decompose"]
