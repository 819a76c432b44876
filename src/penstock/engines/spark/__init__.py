"""Spark through PySpark: the only folder that imports pyspark.

engine.py          what the registry finds; says what Spark cannot do, and explains a plan
fragments.py       a plan split where rows must change the worker
read_placement.py  who reads a source: the driver, Python workers, or the JVM
wire.py            what travels between driver and workers
driver/            reads rounds, runs jobs, writes sinks, commits
fragment_task.py   a fragment at work in a Python worker
file_splits.py     batches that workers read, and their share of one
jvm_source.py      sources that the driver does not read, and what the JVM does for them
jvm_partials.py    partial aggregates by Spark's own grouping
expressions/       the third lowering of the expression language, to Columns
dataframes/        `penstock.spark.window_aggregate`, for DataFrames without a graph
session/           the Spark session, its Java and its worker processes
to_spark.py        a pipe as a DataFrame
types.py           Arrow's types and Spark's
"""
