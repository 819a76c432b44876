"""Windows inside a PySpark program that is there already: DataFrames in, DataFrames out.

Nothing else of Penstock has to be adopted. `import penstock.spark` loads no pyspark; using it does.
"""

from penstock.lazy import attach_stub

attach_stub(__name__)
