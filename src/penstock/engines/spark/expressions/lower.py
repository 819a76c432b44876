"""Follow the typed program from top to bottom, once, into a Column for the value and one for the failure."""

from __future__ import annotations

import pyarrow as pa

from penstock.engines.spark.expressions import arithmetic, cast, choice, comparison, leaves, string, time
from penstock.engines.spark.expressions.leaves import SharedColumns
from penstock.engines.spark.expressions.rule import Inputs, Lowered, any_failed, null_where_failed, rule
from penstock.errors import NotSupported
from penstock.expr import Expr, Node, Sees, resolve
from penstock.expr.program import Line

# Importing a family files its rules.
FAMILIES = (arithmetic, cast, choice, comparison, leaves, string, time)
LARGE = 300
"""A part with this many nodes is cheaper as a column that is computed once."""
HEAVIEST = 20_000
"""Trees beyond this many nodes would keep Spark's planner busy for longer than the batch."""


def lower_spark(expr: Expr, schema: pa.Schema, *, parts: SharedColumns | None = None) -> Lowered:
    """The Columns of an expression over rows of that schema; needs a running Spark.

    With `parts`, what is large becomes a column of its own in `parts.rows`, from which the result must then
    be selected; without, an expression that would grow too large is refused.
    """
    results: list[Lowered] = []
    for line in resolve(expr, schema):
        made = _lower_line(line, [results[place] for place in line.inputs])
        if parts is not None and made.size > LARGE:
            made = parts.kept(made)
        if made.size > HEAVIEST:
            raise NotSupported(
                f"{line.node!s:.80} is too large for one expression on Spark",
                detail="each part that is used twice is written out twice",
                hint="compute a part of it in a map of its own first: .map(part=…)",
            )
        results.append(made)
    return results[-1]


def _lower_line(line: Line, inputs: Inputs) -> Lowered:
    made = rule(line.node, line, inputs)
    own = made if isinstance(made, Lowered) else Lowered(made)
    if line.node.sees is not Sees.FAILURES:
        own = _with_failures(own, line.node, inputs)
    weight, flag = _weights(own, line, inputs)
    return Lowered(own.value, own.failed, own.constant, weight, flag)


def _with_failures(own: Lowered, node: Node, inputs: Inputs) -> Lowered:
    """Hand on the failures of inputs; nulls are handed on by Spark's own functions."""
    failed = any_failed(*(each.failed for each in inputs), own.failed)
    if failed is None or node.sees is Sees.VALUES:
        return Lowered(own.value, failed, own.constant)
    return null_where_failed(Lowered(own.value, failed))


def _weights(own: Lowered, line: Line, inputs: Inputs) -> tuple[int, int]:
    """About how large the trees are: the inputs as often as a rule of this class may write them out."""
    inside = sum(each.weight for each in inputs)
    weight = 1 + inside * COPIES.get(type(line.node), 1)
    if own.failed is None:
        return weight, 0
    return weight, 1 + weight + inside + sum(each.flag_weight for each in inputs)


COPIES: dict[type[Node], int] = {
    **arithmetic.COPIES,
    **cast.COPIES,
    **choice.COPIES,
    **comparison.COPIES,
    **time.COPIES,
}
