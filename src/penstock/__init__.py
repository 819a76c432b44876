"""Penstock: stream processing in Python, on Spark Structured Streaming or in process.

A program is a graph of operators over out-of-order streams: `PipeGraph` starts it, `MultiPipe` has a verb
per operator, `run` carries the rows. See README.md for a first program and docs/semantics.md for what
windows, watermarks and late rows mean.
"""

from penstock import read as read
from penstock import write as write
from penstock.clock import ManualClock as ManualClock
from penstock.clock import WallClock as WallClock
from penstock.connect.readers.generator import Watermark as Watermark
from penstock.errors import CheckpointError as CheckpointError
from penstock.errors import ConnectorError as ConnectorError
from penstock.errors import EngineError as EngineError
from penstock.errors import FunctionError as FunctionError
from penstock.errors import GraphError as GraphError
from penstock.errors import NotSupported as NotSupported
from penstock.errors import PenstockError as PenstockError
from penstock.errors import SchemaError as SchemaError
from penstock.errors import TimeError as TimeError
from penstock.expr import Expr as Expr
from penstock.expr import coalesce as coalesce
from penstock.expr import col as col
from penstock.expr import concat as concat
from penstock.expr import from_epoch as from_epoch
from penstock.expr import hash as hash
from penstock.expr import lit as lit
from penstock.expr import spark_expr as spark_expr
from penstock.expr import when as when
from penstock.graph.multipipe import MultiPipe as MultiPipe
from penstock.graph.options import Elastic as Elastic
from penstock.graph.options import LocalOptions as LocalOptions
from penstock.graph.options import SparkOptions as SparkOptions
from penstock.graph.pipegraph import PipeGraph as PipeGraph
from penstock.operators import Accumulator as Accumulator
from penstock.operators import Filter as Filter
from penstock.operators import FlatMap as FlatMap
from penstock.operators import KeyedWindows as KeyedWindows
from penstock.operators import Map as Map
from penstock.operators import MapReduceWindows as MapReduceWindows
from penstock.operators import Operator as Operator
from penstock.operators import PanedWindows as PanedWindows
from penstock.operators import ParallelWindows as ParallelWindows
from penstock.operators import Process as Process
from penstock.operators import Select as Select
from penstock.operators import Sink as Sink
from penstock.operators import Source as Source
from penstock.operators import Split as Split
from penstock.operators import StaticJoin as StaticJoin
from penstock.operators import WindowJoin as WindowJoin
from penstock.operators.aggregates import approx_distinct as approx_distinct
from penstock.operators.aggregates import collect as collect
from penstock.operators.aggregates import count as count
from penstock.operators.aggregates import event_time_max as event_time_max
from penstock.operators.aggregates import first as first
from penstock.operators.aggregates import fold as fold
from penstock.operators.aggregates import last as last
from penstock.operators.aggregates import max as max
from penstock.operators.aggregates import max_count as max_count
from penstock.operators.aggregates import mean as mean
from penstock.operators.aggregates import min as min
from penstock.operators.aggregates import min_count as min_count
from penstock.operators.aggregates import quantile as quantile
from penstock.operators.aggregates import std as std
from penstock.operators.aggregates import sum as sum
from penstock.operators.aggregates import var as var
from penstock.operators.function import batch as batch
from penstock.operators.predicate import band as band
from penstock.operators.predicate import equal as equal
from penstock.operators.process import DONE as DONE
from penstock.operators.process import OVER as OVER
from penstock.operators.process import Availability as Availability
from penstock.operators.process import Context as Context
from penstock.operators.row import Row as Row
from penstock.operators.source import ingest_time as ingest_time
from penstock.operators.source import yielded as yielded
from penstock.operators.this_window import ThisWindow as ThisWindow
from penstock.operators.window import count_window as count_window
from penstock.operators.window import session as session
from penstock.operators.window import sliding as sliding
from penstock.operators.window import tumbling as tumbling


def __getattr__(name: str) -> str:
    """The version, which is looked up when somebody asks: that takes longer than all the names above."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
