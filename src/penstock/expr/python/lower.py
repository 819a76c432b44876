"""From an expression to a function of one row.

Every line of the typed program is computed, also the branches that are not taken; a failure travels until a
node that may ignore it does, or until the end, where it is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.expr.program import resolve
from penstock.expr.python.write import written
from penstock.expr.surface import Expr


def lower_python(expr: Expr, schema: pa.Schema) -> Callable[[Mapping[str, object]], object]:
    """A function from a row's plain values to the expression's plain value; it raises RowFailure.

    >>> from penstock.expr import col
    >>> lower_python(col("a") + 1, pa.schema({"a": pa.int64()}))({"a": 41})
    42
    """
    return written(resolve(expr, schema))
