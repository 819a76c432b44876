"""Expressions in plain Python, one row at a time: one module per family of nodes.

`lower.py` has the lowering; importing a family registers its rules with `lower.lower_node`.
"""

from penstock.expr.python import arithmetic as arithmetic
from penstock.expr.python import cast as cast
from penstock.expr.python import columns as columns
from penstock.expr.python import comparison as comparison
from penstock.expr.python import conditional as conditional
from penstock.expr.python import functions as functions
from penstock.expr.python import nested as nested
from penstock.expr.python import string as string
from penstock.expr.python import time as time
