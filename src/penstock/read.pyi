# The names of this package and the modules they are in; penstock.lazy loads them on demand.

from penstock.connect.readers.csv import csv as csv
from penstock.connect.readers.iterables import generator as generator
from penstock.connect.readers.iterables import iterable as iterable
from penstock.connect.readers.parquet import parquet as parquet
from penstock.connect.readers.program import batches as batches
from penstock.connect.readers.program import rows as rows
from penstock.connect.readers.program import table as table
from penstock.connect.readers.spark import spark as spark
from penstock.connect.readers.tcp import tcp as tcp
from penstock.connect.readers.text import jsonl as jsonl
from penstock.connect.readers.text import text as text

__all__: list[str]
