"""Spark Structured Streaming through PySpark: the only room that imports pyspark.

The ground on which the engine stands: `session.py` opens a session (`settings.py` says with what, `java.py`
finds a Java, `shipping.py` brings the package to executors, `daemon.py` warms the workers), `types.py`
crosses between Arrow's types and Spark's, `expressions/` is the third lowering of the expression language,
and `keys.py` and `slicing.py` are the bucket and the slice of a row as JVM arithmetic.
"""
