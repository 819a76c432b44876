"""Which bucket a key is in: the fixed grain by which state is saved, moved and shared out.

There are 256 buckets for ever, whatever the number of replicas or partitions, so a snapshot made by three
replicas can be taken up by five. The hash is XXH64 over the key columns, as `expr/nodes/numbers.py`
defines it. In the JVM the bucket is `pmod(xxhash64(columns...), 256)`: the remainder of a power of two,
taken upwards, is the lowest eight bits, also of a negative hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BUCKETS = 256
NO_COLUMNS = 42  # a key without columns hashes to the seed, as a key of nulls does


def bucket_of(hashed: int) -> int:
    """Return the bucket of one hash, signed or not.

    >>> bucket_of(-1), bucket_of(2**64 - 1), bucket_of(256)
    (255, 255, 0)
    """
    return hashed & (BUCKETS - 1)


def buckets_of(hashed: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the buckets of many hashes.

    >>> buckets_of(np.array([-1, 256, 42])).tolist()
    [255, 0, 42]
    """
    return (hashed & (BUCKETS - 1)).astype(np.uint8)
