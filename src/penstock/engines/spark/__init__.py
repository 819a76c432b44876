"""Spark through PySpark: the only room that imports pyspark.

engine.py          what the registry finds; says what Spark cannot do, and explains a plan
fragments.py       a plan split where rows must change the worker
read_placement.py  who reads a source: the driver, Python workers, or the JVM
wire.py            what travels between driver and workers
driver/            reads rounds, runs jobs, writes sinks, commits
worker/            runs fragments in Python workers
jvm/               what runs in the JVM: DataFrame sources, expressions, partial aggregates
expressions/       the third lowering of the expression language, to Columns
dataframes/        `penstock.spark.window_aggregate`, for DataFrames without a graph
session/           the Spark session, its Java and its worker processes
to_spark.py        a pipe as a DataFrame
types.py           Arrow's types and Spark's
failures.py        what Spark raises, as an error of ours
"""
