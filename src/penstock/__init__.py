"""Penstock: stream processing in Python, on Spark Structured Streaming or in process.

A program is a graph of operators over out-of-order streams: `PipeGraph` starts it, `MultiPipe` has a verb
per operator, `run` carries the rows. See README.md for a first program and docs/semantics.md for what
windows, watermarks and late rows mean.
"""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock import blocks as blocks
    from penstock import events as events
    from penstock import options as options
    from penstock import read as read
    from penstock import schedulers as schedulers
    from penstock import spark as spark
    from penstock import testing as testing
    from penstock import write as write
    from penstock.accounts import Accounts as Accounts
    from penstock.clock import ManualClock as ManualClock
    from penstock.clock import WallClock as WallClock
    from penstock.connect.protocol import Reader as Reader
    from penstock.connect.protocol import Writer as Writer
    from penstock.connect.readers.generator import Watermark as Watermark
    from penstock.engines.protocol import Run as Run
    from penstock.engines.protocol import RunResult as RunResult
    from penstock.errors import CheckpointError as CheckpointError
    from penstock.errors import ConnectorError as ConnectorError
    from penstock.errors import EngineError as EngineError
    from penstock.errors import FunctionError as FunctionError
    from penstock.errors import GraphError as GraphError
    from penstock.errors import NotSupported as NotSupported
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import SchemaError as SchemaError
    from penstock.errors import TimeError as TimeError
    from penstock.expr.nodes.columns import col as col
    from penstock.expr.nodes.columns import lit as lit
    from penstock.expr.nodes.conditional import coalesce as coalesce
    from penstock.expr.nodes.conditional import when as when
    from penstock.expr.nodes.functions import hash as hash
    from penstock.expr.nodes.functions import spark_expr as spark_expr
    from penstock.expr.nodes.string import concat as concat
    from penstock.expr.nodes.time import from_epoch as from_epoch
    from penstock.expr.surface import Expr as Expr
    from penstock.graph.multipipe import MultiPipe as MultiPipe
    from penstock.graph.pipegraph import PipeGraph as PipeGraph
    from penstock.operators.accumulate import Accumulate as Accumulate
    from penstock.operators.aggregates.approximate import approx_distinct as approx_distinct
    from penstock.operators.aggregates.approximate import quantile as quantile
    from penstock.operators.aggregates.base import Aggregate as Aggregate
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
    from penstock.operators.aggregates.fold import fold as fold
    from penstock.operators.columns import Select as Select
    from penstock.operators.columns import WithColumns as WithColumns
    from penstock.operators.function import batch as batch
    from penstock.operators.map import Filter as Filter
    from penstock.operators.map import FlatMap as FlatMap
    from penstock.operators.map import Map as Map
    from penstock.operators.process import Context as Context
    from penstock.operators.process import Process as Process
    from penstock.operators.process import ProcessOperator as ProcessOperator
    from penstock.operators.row import Row as Row
    from penstock.operators.sink import Sink as Sink
    from penstock.operators.source import Source as Source
    from penstock.operators.source import ingest_time as ingest_time
    from penstock.operators.source import source_watermark as source_watermark
    from penstock.operators.split import Split as Split
    from penstock.operators.stream_join import StreamJoin as StreamJoin
    from penstock.operators.stream_join import band as band
    from penstock.operators.stream_join import equal as equal
    from penstock.operators.table_join import TableJoin as TableJoin
    from penstock.operators.window_specs import count_window as count_window
    from penstock.operators.window_specs import session as session
    from penstock.operators.window_specs import sliding as sliding
    from penstock.operators.window_specs import tumbling as tumbling
    from penstock.operators.windows import KeyedWindows as KeyedWindows
    from penstock.operators.windows import MapReduceWindows as MapReduceWindows
    from penstock.operators.windows import PanedWindows as PanedWindows
    from penstock.operators.windows import ParallelWindows as ParallelWindows
    from penstock.options import Elastic as Elastic
    from penstock.options import LocalOptions as LocalOptions
    from penstock.options import SparkOptions as SparkOptions
    from penstock.options import StepOptions as StepOptions

    __version__: str
else:
    defer(
        __name__,
        {
            "penstock.clock": "ManualClock WallClock",
            "penstock.connect.readers.generator": "Watermark",
            "penstock.errors": (
                "CheckpointError ConnectorError EngineError FunctionError GraphError NotSupported "
                "PenstockError SchemaError TimeError"
            ),
            "penstock.expr.nodes.columns": "col lit",
            "penstock.expr.nodes.conditional": "coalesce when",
            "penstock.expr.nodes.functions": "hash spark_expr",
            "penstock.expr.nodes.string": "concat",
            "penstock.expr.nodes.time": "from_epoch",
            "penstock.expr.surface": "Expr",
            "penstock.graph.multipipe": "MultiPipe",
            "penstock.graph.pipegraph": "PipeGraph",
            "penstock.operators.accumulate": "Accumulate",
            "penstock.operators.aggregates.approximate": "approx_distinct quantile",
            "penstock.operators.aggregates.basic": "count max max_count mean min min_count std sum var",
            "penstock.operators.aggregates.fold": "fold",
            "penstock.operators.aggregates.basic": "collect event_time_max first last",
            "penstock.operators.function": "batch",
            "penstock.operators.map": "Filter FlatMap Map",
            "penstock.operators.columns": "Select WithColumns",
            "penstock.operators.process": "Context Process ProcessOperator",
            "penstock.operators.row": "Row",
            "penstock.operators.sink": "Sink",
            "penstock.operators.source": "Source ingest_time source_watermark",
            "penstock.operators.split": "Split",
            "penstock.operators.table_join": "TableJoin",
            "penstock.operators.window_specs": "count_window session sliding tumbling",
            "penstock.operators.stream_join": "StreamJoin band equal",
            "penstock.operators.windows": ("KeyedWindows MapReduceWindows PanedWindows ParallelWindows"),
            "penstock.options": "Elastic LocalOptions SparkOptions StepOptions options",
            "penstock.blocks": "blocks",
            "penstock.spark": "spark",
            "penstock.testing": "testing",
            "penstock.accounts": "Accounts",
            "penstock.connect.protocol": "Reader Writer",
            "penstock.engines.protocol": "Run RunResult",
            "penstock.operators.aggregates.base": "Aggregate",
            "penstock.events": "events",
            "penstock.read": "read",
            "penstock.schedulers": "schedulers",
            "penstock.write": "write",
        },
    )

    def __getattr__(name: str) -> str:
        """The version, which is looked up when somebody asks: that takes longer than a small program."""
        if name == "__version__":
            from importlib.metadata import version

            return version("penstock")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
