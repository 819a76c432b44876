"""The benchmark runner: workloads, interleaved rounds, checked answers, comparison of results.

A workload (`bench/workloads/NAME.py`) says what is done; `measure` times it, `compare` compares two results,
`text` and `page` show them. The method is in docs/benchmarks.md.
"""

from bench.compare import FLOOR as FLOOR
from bench.compare import Change as Change
from bench.compare import Comparison as Comparison
from bench.compare import compare as compare
from bench.machine import Machine as Machine
from bench.machine import describe_machine as describe_machine
from bench.page import build_page as build_page
from bench.result import Result as Result
from bench.result import load_result as load_result
from bench.result import to_json as to_json
from bench.runner import Progress as Progress
from bench.runner import measure as measure
from bench.text import align_columns as align_columns
from bench.text import format_comparison as format_comparison
from bench.text import format_result as format_result
from bench.workload import BenchError as BenchError
from bench.workload import Case as Case
from bench.workload import Cell as Cell
from bench.workload import Chart as Chart
from bench.workload import Claim as Claim
from bench.workload import Line as Line
from bench.workload import Point as Point
from bench.workload import Size as Size
from bench.workload import Way as Way
from bench.workload import WayFailed as WayFailed
from bench.workload import Workload as Workload
from bench.workload import WrongAnswer as WrongAnswer
from bench.workload import list_workloads as list_workloads
from bench.workload import load_workload as load_workload
