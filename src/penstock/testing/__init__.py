"""Tools for testing streaming programs: the same ones that Penstock is tested with.

`Harness` feeds a pipe batch by batch, in this process; `ManualClock` holds time still; `assert_engines_agree`
runs a graph on several engines and compares; `check_associative` looks for folds that windows could not rely
on; `engine="reference"` is the slow, obvious interpreter that judges the other engines. `ps.read.batches` and
`ps.write.memory` are the source and the sink for tests. Hypothesis strategies are in
`penstock.testing.strategies` (they need the extra `testing`).
"""

from penstock.clock import ManualClock as ManualClock
from penstock.testing.assertions import assert_engines_agree as assert_engines_agree
from penstock.testing.assertions import check_associative as check_associative
from penstock.testing.assertions import difference as difference
from penstock.testing.harness import Harness as Harness
