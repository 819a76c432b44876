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
- **Casts**: only those on which engines agree exactly, listed in `cast.py`.
- **Hash**: Spark's xxhash64 with seed 42.
- **Decimal**: compared, chosen, and cast to float64; no arithmetic.

`resolve` makes a typed program of an expression; a lowering follows it instruction by instruction and
dispatches on the node's class: `lower_python` for the reference engine, `lower_arrow` in process,
`lower_spark` in the JVM.
"""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.expr.arrow.columnar_value import ColumnarValue as ColumnarValue
    from penstock.expr.arrow.lower import lower_arrow as lower_arrow
    from penstock.expr.node import InputHandling as InputHandling
    from penstock.expr.node import Node as Node
    from penstock.expr.nodes.arithmetic import Absolute as Absolute
    from penstock.expr.nodes.arithmetic import Add as Add
    from penstock.expr.nodes.arithmetic import Ceil as Ceil
    from penstock.expr.nodes.arithmetic import Divide as Divide
    from penstock.expr.nodes.arithmetic import Floor as Floor
    from penstock.expr.nodes.arithmetic import FloorDivide as FloorDivide
    from penstock.expr.nodes.arithmetic import Modulo as Modulo
    from penstock.expr.nodes.arithmetic import Multiply as Multiply
    from penstock.expr.nodes.arithmetic import Negate as Negate
    from penstock.expr.nodes.arithmetic import Power as Power
    from penstock.expr.nodes.arithmetic import Round as Round
    from penstock.expr.nodes.arithmetic import Sqrt as Sqrt
    from penstock.expr.nodes.arithmetic import Subtract as Subtract
    from penstock.expr.nodes.cast import Cast as Cast
    from penstock.expr.nodes.cast import cast_target as cast_target
    from penstock.expr.nodes.columns import Column as Column
    from penstock.expr.nodes.columns import Field as Field
    from penstock.expr.nodes.columns import Literal as Literal
    from penstock.expr.nodes.columns import col as col
    from penstock.expr.nodes.columns import lit as lit
    from penstock.expr.nodes.columns import to_expr as to_expr
    from penstock.expr.nodes.comparison import Between as Between
    from penstock.expr.nodes.comparison import Equal as Equal
    from penstock.expr.nodes.comparison import Greater as Greater
    from penstock.expr.nodes.comparison import GreaterEqual as GreaterEqual
    from penstock.expr.nodes.comparison import IsIn as IsIn
    from penstock.expr.nodes.comparison import Less as Less
    from penstock.expr.nodes.comparison import LessEqual as LessEqual
    from penstock.expr.nodes.comparison import NotEqual as NotEqual
    from penstock.expr.nodes.comparison import to_literals as to_literals
    from penstock.expr.nodes.conditional import And as And
    from penstock.expr.nodes.conditional import Case as Case
    from penstock.expr.nodes.conditional import Coalesce as Coalesce
    from penstock.expr.nodes.conditional import FillNull as FillNull
    from penstock.expr.nodes.conditional import IsNan as IsNan
    from penstock.expr.nodes.conditional import IsNotNull as IsNotNull
    from penstock.expr.nodes.conditional import IsNull as IsNull
    from penstock.expr.nodes.conditional import Not as Not
    from penstock.expr.nodes.conditional import Or as Or
    from penstock.expr.nodes.conditional import When as When
    from penstock.expr.nodes.conditional import coalesce as coalesce
    from penstock.expr.nodes.conditional import when as when
    from penstock.expr.nodes.functions import Hash as Hash
    from penstock.expr.nodes.functions import SparkSql as SparkSql
    from penstock.expr.nodes.functions import hash as hash
    from penstock.expr.nodes.functions import spark_expr as spark_expr
    from penstock.expr.nodes.nested import JsonValue as JsonValue
    from penstock.expr.nodes.nested import ListItem as ListItem
    from penstock.expr.nodes.nested import ListLength as ListLength
    from penstock.expr.nodes.nested import Lists as Lists
    from penstock.expr.nodes.nested import json_target as json_target
    from penstock.expr.nodes.string import Concat as Concat
    from penstock.expr.nodes.string import Contains as Contains
    from penstock.expr.nodes.string import EndsWith as EndsWith
    from penstock.expr.nodes.string import Length as Length
    from penstock.expr.nodes.string import Lower as Lower
    from penstock.expr.nodes.string import Replace as Replace
    from penstock.expr.nodes.string import Slice as Slice
    from penstock.expr.nodes.string import Split as Split
    from penstock.expr.nodes.string import StartsWith as StartsWith
    from penstock.expr.nodes.string import Strings as Strings
    from penstock.expr.nodes.string import Strip as Strip
    from penstock.expr.nodes.string import Upper as Upper
    from penstock.expr.nodes.string import concat as concat
    from penstock.expr.nodes.time import Epoch as Epoch
    from penstock.expr.nodes.time import FromEpoch as FromEpoch
    from penstock.expr.nodes.time import Shift as Shift
    from penstock.expr.nodes.time import TimePart as TimePart
    from penstock.expr.nodes.time import Times as Times
    from penstock.expr.nodes.time import Truncate as Truncate
    from penstock.expr.nodes.time import from_epoch as from_epoch
    from penstock.expr.nodes.time import shift_micros as shift_micros
    from penstock.expr.program import Instruction as Instruction
    from penstock.expr.program import resolve as resolve
    from penstock.expr.program import type_of as type_of
    from penstock.expr.python.lower import lower_python as lower_python
    from penstock.expr.surface import Expr as Expr
    from penstock.expr.types import canonical as canonical
    from penstock.expr.types import canonical_batch as canonical_batch
    from penstock.expr.types import canonical_schema as canonical_schema
    from penstock.expr.types import from_plain as from_plain
    from penstock.expr.types import from_python as from_python
    from penstock.expr.types import to_plain as to_plain
    from penstock.expr.types import to_python as to_python
else:
    defer(
        __name__,
        {
            "penstock.expr.arrow.columnar_value": "ColumnarValue",
            "penstock.expr.arrow.lower": "lower_arrow",
            "penstock.expr.node": "Node InputHandling",
            "penstock.expr.nodes.arithmetic": (
                "Absolute Add Ceil Divide Floor FloorDivide Modulo Multiply Negate Power Round Sqrt Subtract"
            ),
            "penstock.expr.nodes.cast": "Cast cast_target",
            "penstock.expr.nodes.columns": "Column Field Literal col to_expr lit",
            "penstock.expr.nodes.comparison": (
                "Between Equal Greater GreaterEqual IsIn Less LessEqual NotEqual to_literals"
            ),
            "penstock.expr.nodes.conditional": (
                "And Case Coalesce FillNull IsNan IsNotNull IsNull Not Or When coalesce when"
            ),
            "penstock.expr.nodes.functions": "Hash SparkSql hash spark_expr",
            "penstock.expr.nodes.nested": "JsonValue ListItem ListLength Lists json_target",
            "penstock.expr.nodes.string": (
                "Concat Contains EndsWith Length Lower Replace Slice Split StartsWith Strings "
                "Strip Upper concat"
            ),
            "penstock.expr.nodes.time": (
                "Epoch FromEpoch Shift TimePart Times Truncate from_epoch shift_micros"
            ),
            "penstock.expr.program": "Instruction resolve type_of",
            "penstock.expr.python.lower": "lower_python",
            "penstock.expr.surface": "Expr",
            "penstock.expr.types": (
                "canonical canonical_batch canonical_schema from_plain from_python to_plain to_python"
            ),
        },
    )
