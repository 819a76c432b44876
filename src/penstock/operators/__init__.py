"""The operators: frozen descriptions of what each step does, with the rule that types its outputs."""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.operators.accumulate import Accumulate as Accumulate
    from penstock.operators.columns import Select as Select
    from penstock.operators.columns import WithColumns as WithColumns
    from penstock.operators.map import Filter as Filter
    from penstock.operators.map import FlatMap as FlatMap
    from penstock.operators.map import Map as Map
    from penstock.operators.op import Degree as Degree
    from penstock.operators.op import OnError as OnError
    from penstock.operators.op import Op as Op
    from penstock.operators.op import Routing as Routing
    from penstock.operators.process import Process as Process
    from penstock.operators.process import ProcessOperator as ProcessOperator
    from penstock.operators.sink import Sink as Sink
    from penstock.operators.source import Source as Source
    from penstock.operators.split import Relay as Relay
    from penstock.operators.split import Split as Split
    from penstock.operators.stream import Stream as Stream
    from penstock.operators.stream_join import StreamJoin as StreamJoin
    from penstock.operators.table_join import TableJoin as TableJoin
    from penstock.operators.windows import KeyedWindows as KeyedWindows
    from penstock.operators.windows import MapReduceWindows as MapReduceWindows
    from penstock.operators.windows import PanedWindows as PanedWindows
    from penstock.operators.windows import ParallelWindows as ParallelWindows
    from penstock.operators.windows import Windows as Windows
else:
    defer(
        __name__,
        {
            "penstock.operators.accumulate": "Accumulate",
            "penstock.operators.map": "Filter FlatMap Map",
            "penstock.operators.columns": "Select WithColumns",
            "penstock.operators.op": "Degree OnError Op Routing",
            "penstock.operators.process": "ProcessOperator Process",
            "penstock.operators.sink": "Sink",
            "penstock.operators.source": "Source",
            "penstock.operators.split": "Relay Split",
            "penstock.operators.table_join": "TableJoin",
            "penstock.operators.stream": "Stream",
            "penstock.operators.stream_join": "StreamJoin",
            "penstock.operators.windows": (
                "KeyedWindows MapReduceWindows PanedWindows ParallelWindows Windows"
            ),
        },
    )
