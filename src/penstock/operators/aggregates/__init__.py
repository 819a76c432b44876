"""The aggregates, one per file: specifications that every engine computes to the same answer."""

from typing import TYPE_CHECKING

from penstock.deferred import defer

if TYPE_CHECKING:
    from penstock.operators.aggregates.approx_distinct import ApproxDistinct as ApproxDistinct
    from penstock.operators.aggregates.approx_distinct import approx_distinct as approx_distinct
    from penstock.operators.aggregates.base import Aggregate as Aggregate
    from penstock.operators.aggregates.collect import Collect as Collect
    from penstock.operators.aggregates.collect import collect as collect
    from penstock.operators.aggregates.count import Count as Count
    from penstock.operators.aggregates.count import count as count
    from penstock.operators.aggregates.event_time_max import EventTimeMax as EventTimeMax
    from penstock.operators.aggregates.event_time_max import event_time_max as event_time_max
    from penstock.operators.aggregates.first import First as First
    from penstock.operators.aggregates.first import first as first
    from penstock.operators.aggregates.fold import Fold as Fold
    from penstock.operators.aggregates.fold import fold as fold
    from penstock.operators.aggregates.last import Last as Last
    from penstock.operators.aggregates.last import last as last
    from penstock.operators.aggregates.max import Max as Max
    from penstock.operators.aggregates.max import max as max
    from penstock.operators.aggregates.max_count import MaxCount as MaxCount
    from penstock.operators.aggregates.max_count import max_count as max_count
    from penstock.operators.aggregates.mean import Mean as Mean
    from penstock.operators.aggregates.mean import mean as mean
    from penstock.operators.aggregates.min import Min as Min
    from penstock.operators.aggregates.min import min as min
    from penstock.operators.aggregates.min_count import MinCount as MinCount
    from penstock.operators.aggregates.min_count import min_count as min_count
    from penstock.operators.aggregates.quantile import Quantile as Quantile
    from penstock.operators.aggregates.quantile import quantile as quantile
    from penstock.operators.aggregates.std import Std as Std
    from penstock.operators.aggregates.std import std as std
    from penstock.operators.aggregates.sum import Sum as Sum
    from penstock.operators.aggregates.sum import sum as sum
    from penstock.operators.aggregates.var import Var as Var
    from penstock.operators.aggregates.var import var as var
else:
    defer(
        __name__,
        {
            "penstock.operators.aggregates.approx_distinct": "ApproxDistinct approx_distinct",
            "penstock.operators.aggregates.base": "Aggregate",
            "penstock.operators.aggregates.collect": "Collect collect",
            "penstock.operators.aggregates.count": "Count count",
            "penstock.operators.aggregates.event_time_max": "EventTimeMax event_time_max",
            "penstock.operators.aggregates.first": "First first",
            "penstock.operators.aggregates.fold": "Fold fold",
            "penstock.operators.aggregates.last": "Last last",
            "penstock.operators.aggregates.max": "Max max",
            "penstock.operators.aggregates.max_count": "MaxCount max_count",
            "penstock.operators.aggregates.mean": "Mean mean",
            "penstock.operators.aggregates.min": "Min min",
            "penstock.operators.aggregates.min_count": "MinCount min_count",
            "penstock.operators.aggregates.quantile": "Quantile quantile",
            "penstock.operators.aggregates.std": "Std std",
            "penstock.operators.aggregates.sum": "Sum sum",
            "penstock.operators.aggregates.var": "Var var",
        },
    )
