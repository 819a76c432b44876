from __future__ import annotations

import numpy as np
import pytest

from penstock.timing.bucket import BUCKETS, bucket_of, buckets_of


@pytest.mark.parametrize("hashed", [0, 1, 255, 256, -1, -256, -257, 2**63 - 1, -(2**63)])
def test_the_bucket_is_the_remainder_taken_upwards(hashed: int) -> None:
    assert bucket_of(hashed) == hashed % BUCKETS
    assert buckets_of(np.array([hashed])).tolist() == [hashed % BUCKETS]


def test_signed_and_unsigned_hashes_have_one_bucket() -> None:
    assert bucket_of(-5) == bucket_of(2**64 - 5)
