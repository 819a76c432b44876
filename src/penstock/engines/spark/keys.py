"""The bucket of a row's key as JVM arithmetic, equal to `timing/bucket.py` over `stages/key_buckets.py`.

State is saved and dealt out by bucket, so this must never change: a property test holds it to the hash that
the stages compute. Null, NaN and the two zeros are hashed alike on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.leaves import column
from penstock.timing.bucket import BUCKETS, NO_COLUMNS


def bucket(names: Sequence[str]) -> Column:
    """The bucket, an INT from 0 to 255, of the key in these columns; without columns always the same."""
    if not names:
        return F.lit(NO_COLUMNS)
    hashed = F.xxhash64(*(column(name) for name in names))
    return F.pmod(hashed, F.lit(BUCKETS).cast("long")).cast("int")
