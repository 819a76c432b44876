"""Expressions on Arrow columns, a batch at a time: kernels of Arrow and NumPy, no Python per row."""

from penstock.expr.arrow.evaluated import Evaluated as Evaluated
from penstock.expr.arrow.lower import lower_arrow as lower_arrow
