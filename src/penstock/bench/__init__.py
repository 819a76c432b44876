"""The bench runner: workloads, interleaved rounds, checked answers, honest comparison.

A workload (`bench/workloads/NAME.py`) says what is done; `measure` times it, `compare` judges two
results, `text` and `page` show them. The method is in docs/benchmarks.md. Uses only public names of
penstock.
"""

from penstock.bench.catalogue import available as available
from penstock.bench.catalogue import find as find
from penstock.bench.cell import Cell as Cell
from penstock.bench.chart import Chart as Chart
from penstock.bench.chart import Line as Line
from penstock.bench.chart import Point as Point
from penstock.bench.comparison import FLOOR as FLOOR
from penstock.bench.comparison import Change as Change
from penstock.bench.comparison import Comparison as Comparison
from penstock.bench.comparison import compare as compare
from penstock.bench.errors import BenchError as BenchError
from penstock.bench.errors import WayFailed as WayFailed
from penstock.bench.errors import WrongAnswer as WrongAnswer
from penstock.bench.machine import Machine as Machine
from penstock.bench.machine import this_machine as this_machine
from penstock.bench.result import Result as Result
from penstock.bench.runner import Progress as Progress
from penstock.bench.runner import measure as measure
from penstock.bench.store import load as load
from penstock.bench.store import to_json as to_json
from penstock.bench.text import columns as columns
from penstock.bench.text import report as report
from penstock.bench.text import report_comparison as report_comparison
from penstock.bench.webpage import page as page
from penstock.bench.workload import Case as Case
from penstock.bench.workload import Claim as Claim
from penstock.bench.workload import Size as Size
from penstock.bench.workload import Way as Way
from penstock.bench.workload import Workload as Workload
