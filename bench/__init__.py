"""The bench runner: workloads, interleaved rounds, checked answers, honest comparison.

A workload (`bench/workloads/NAME.py`) says what is done; `measure` times it, `compare` judges two
results, `text` and `page` show them. The method is in docs/benchmarks.md. Uses only public names of
penstock.
"""

from bench.catalogue import available as available
from bench.catalogue import find as find
from bench.cell import Cell as Cell
from bench.chart import Chart as Chart
from bench.chart import Line as Line
from bench.chart import Point as Point
from bench.comparison import FLOOR as FLOOR
from bench.comparison import Change as Change
from bench.comparison import Comparison as Comparison
from bench.comparison import compare as compare
from bench.errors import BenchError as BenchError
from bench.errors import WayFailed as WayFailed
from bench.errors import WrongAnswer as WrongAnswer
from bench.machine import Machine as Machine
from bench.machine import this_machine as this_machine
from bench.page import page as page
from bench.result import Result as Result
from bench.runner import Progress as Progress
from bench.runner import measure as measure
from bench.store import load as load
from bench.store import to_json as to_json
from bench.text import columns as columns
from bench.text import report as report
from bench.text import report_comparison as report_comparison
from bench.workload import Case as Case
from bench.workload import Claim as Claim
from bench.workload import Size as Size
from bench.workload import Way as Way
from bench.workload import Workload as Workload
