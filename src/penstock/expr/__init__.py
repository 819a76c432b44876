"""The expression language: frozen nodes, one type rule each, and the same answer on every engine.

What an expression gives, in short; each family's file has the details:

- **Null**: arithmetic, comparison and functions of null are null; `&` and `|` are three-valued.
- **Failure**: overflow, division by zero, a cast or JSON that does not fit fail the row, not the batch.
  `False & failed` is False and `True | failed` is True; `when` fails only by what it asks and takes,
  `coalesce` and `fill_null` not by what comes after the first value; all else fails, `is_null` too.
- **Integers**: the wider operand's type; an int literal takes the other's type if it fits, else int64.
- **Floats**: int with float is float64; float32 stays with float32 and with literals that fit.
  `/`, `**` and `sqrt` always give float64, and so do `//`, `%` and `round` of floats.
- **`//` and `%`**: towards minus infinity, with the sign of the divisor, as in Python. A zero divisor
  fails the row, for floats too. `**` and `sqrt` follow IEEE 754: NaN or infinity, never a failure.
- **Order**: NaN equals NaN and is greatest, -0.0 equals 0.0; text by code points; only like with like.
- **Time**: always UTC; a timestamp less a timestamp is int64 microseconds; `+` and `-` take "10 s" or a
  timedelta; Monday is weekday 0; parts and counts are int64.
- **Text**: code points; `lower` and `upper` change A to Z only; patterns are literal.
- **Casts**: only those on which engines agree exactly, listed in `nodes/conversion.py`.
- **Hash**: Spark's xxhash64 with seed 42.
- **Decimal**: compared, chosen, and cast to float64; no arithmetic.

`resolve` makes a typed program of an expression; a lowering follows it instruction by instruction and
dispatches on the node's class: `lower_python` for the reference engine, `lower_arrow` in process,
`lower_spark` in the JVM.
"""

from penstock.lazy import attach_stub

attach_stub(__name__)
