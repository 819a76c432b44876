"""A fixed handful of nasty rows and nested expressions, drawn by the strategies of the expression tests."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings

from penstock.expr import Expr
from tests.support.evaluation import batch_of
from tests.support.expressions import TYPES, columns, of_type


@cache
def rows(n_draws: int = 25) -> pa.RecordBatch:
    """Some hundred rows over all types, edges and nulls among them."""
    drawn: list[pa.RecordBatch] = []

    @_draw_settings(n_draws)
    @given(columns(tuple(TYPES), max_rows=12))
    def keep(values: dict[str, tuple[list[object], pa.DataType]]) -> None:
        drawn.append(batch_of(values))

    keep()
    return pa.Table.from_batches(drawn).combine_chunks().to_batches()[0]


def nested(name: str, n_draws: int) -> list[Expr]:
    """Expressions of a type, put together at random."""
    drawn: list[Expr] = []

    @_draw_settings(n_draws)
    @given(of_type(name, 2))
    def keep(expr: Expr) -> None:
        drawn.append(expr)

    keep()
    return drawn


def _draw_settings(n_draws: int) -> settings:
    return settings(
        max_examples=n_draws,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
