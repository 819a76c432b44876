"""What a window step keeps of its rows: the values that are aggregated, registers and sketches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.expr import Expr, type_of
from penstock.operators.choices.kept import is_numeric, is_whole
from penstock.operators.stream import Stream
from penstock.stages.arrays import Form
from penstock.stages.folding import Folding
from penstock.stages.register import Kind, Register
from penstock.timing.windows import Window

if TYPE_CHECKING:  # few programs need sketches, and their library with them
    from penstock.stages.sketch import Sketch, SketchKind


class Sheet:
    """The values that are aggregated and the registers that are kept of them, each once.

    Register 0 counts rows: every window has it, because a window without rows does not exist. `numbered` says
    that batches come with one column of order, by which first and last can be decided.
    """

    def __init__(
        self,
        up: Stream,
        *,
        numbered: bool,
        windows: Sequence[Window],
        foldings: Sequence[Folding] = (),
    ) -> None:
        self.up, self.numbered, self.foldings = up, numbered, tuple(foldings)
        self.windows = tuple(windows)
        self.sketches: list[Sketch] = []
        self.values: list[tuple[Expr, Form] | tuple[Folding, None]] = []
        self.registers: list[Register] = [Register(Kind.ROWS)]

    def type(self, value: Expr) -> pa.DataType:
        """The type of an expression's values."""
        return type_of(value, self.up.schema)

    def keep(self, what: Kind, value: Expr | None = None, form: Form | None = None) -> int:
        """The place of a register, which is added if it is new."""
        column = None if value is None else self._column(value, form or self._form(value))
        register = Register(what, column)
        if register not in self.registers:
            self.registers.append(register)
        return self.registers.index(register)

    def keep_parts(self, folding: Folding) -> int:
        """The place of a fold's register."""
        self.registers.append(Register(Kind.FOLD, len(self.values), folding.rule))
        self.values.append((folding, None))
        return len(self.registers) - 1

    def keep_sketch(self, what: SketchKind, value: Expr, form: Form) -> int:
        """The place of a sketch among the sketches, which is added if it is new."""
        from penstock.stages.sketch import Sketch

        sketch = Sketch(what, self._column(value, form))
        if sketch not in self.sketches:
            self.sketches.append(sketch)
        return self.sketches.index(sketch)

    def _form(self, value: Expr) -> Form:
        """The form that most registers of the value read, for those that read only which are null."""
        type_ = self.type(value)
        return Form.WHOLE if is_whole(type_) else Form.FLOAT if is_numeric(type_) else Form.PRESENT

    def _column(self, value: Expr, form: Form) -> int:
        for place, (known, same) in enumerate(self.values):
            if same is form and isinstance(known, Expr) and known.same_as(value):
                return place
        self.values.append((value, form))
        return len(self.values) - 1
