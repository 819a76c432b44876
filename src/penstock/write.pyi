# The names of this package and the modules they are in; penstock.lazy loads them on demand.

from penstock.connect.writers.delta import delta as delta
from penstock.connect.writers.folder import parquet as parquet
from penstock.connect.writers.program import callback as callback
from penstock.connect.writers.program import console as console
from penstock.connect.writers.program import memory as memory
from penstock.connect.writers.spark import spark as spark
from penstock.connect.writers.tcp import tcp as tcp
from penstock.connect.writers.text_files import csv as csv
from penstock.connect.writers.text_files import jsonl as jsonl

__all__: list[str]
