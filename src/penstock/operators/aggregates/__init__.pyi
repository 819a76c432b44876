# The names of this package and the modules they are in; penstock.lazy loads them on demand.

from penstock.operators.aggregates.approximate import ApproxDistinct as ApproxDistinct
from penstock.operators.aggregates.approximate import Quantile as Quantile
from penstock.operators.aggregates.approximate import approx_distinct as approx_distinct
from penstock.operators.aggregates.approximate import quantile as quantile
from penstock.operators.aggregates.basic import Aggregate as Aggregate
from penstock.operators.aggregates.basic import Collect as Collect
from penstock.operators.aggregates.basic import Count as Count
from penstock.operators.aggregates.basic import EventTimeMax as EventTimeMax
from penstock.operators.aggregates.basic import First as First
from penstock.operators.aggregates.basic import Last as Last
from penstock.operators.aggregates.basic import Max as Max
from penstock.operators.aggregates.basic import MaxCount as MaxCount
from penstock.operators.aggregates.basic import Mean as Mean
from penstock.operators.aggregates.basic import Min as Min
from penstock.operators.aggregates.basic import MinCount as MinCount
from penstock.operators.aggregates.basic import Std as Std
from penstock.operators.aggregates.basic import Sum as Sum
from penstock.operators.aggregates.basic import Var as Var
from penstock.operators.aggregates.basic import collect as collect
from penstock.operators.aggregates.basic import count as count
from penstock.operators.aggregates.basic import event_time_max as event_time_max
from penstock.operators.aggregates.basic import first as first
from penstock.operators.aggregates.basic import last as last
from penstock.operators.aggregates.basic import max as max
from penstock.operators.aggregates.basic import max_count as max_count
from penstock.operators.aggregates.basic import mean as mean
from penstock.operators.aggregates.basic import min as min
from penstock.operators.aggregates.basic import min_count as min_count
from penstock.operators.aggregates.basic import std as std
from penstock.operators.aggregates.basic import sum as sum
from penstock.operators.aggregates.basic import var as var
from penstock.operators.aggregates.fold import Fold as Fold
from penstock.operators.aggregates.fold import fold as fold

__all__: list[str]
