"""Expressions on Arrow columns, one batch at a time: one module per family of nodes.

`lower.py` has the lowering; importing a family registers its rules with `lower.lower_node`.
"""

from penstock.expr.arrow import arithmetic as arithmetic
from penstock.expr.arrow import cast as cast
from penstock.expr.arrow import columns as columns
from penstock.expr.arrow import comparison as comparison
from penstock.expr.arrow import conditional as conditional
from penstock.expr.arrow import functions as functions
from penstock.expr.arrow import nested as nested
from penstock.expr.arrow import string as string
from penstock.expr.arrow import time as time
