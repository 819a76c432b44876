"""Arrow's functions by name: those that `pyarrow.compute` has."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as whole
import pytest

from penstock.expr import compute

NUMBERS = pa.array([1.5, None, -0.0, float("nan")])
FLAGS = pa.array([True, None, False, True])
GIVEN: dict[str, tuple[object, ...]] = {
    "if_else": (FLAGS, NUMBERS, pa.scalar(7.0)),
    "invert": (FLAGS,),
    "take": (NUMBERS, pa.array([3, 0, None])),
    **dict.fromkeys(("abs", "ceil", "dictionary_encode", "floor", "is_nan", "negate", "sqrt"), (NUMBERS,)),
    **{name: (FLAGS, pa.scalar(True)) for name in ("and_", "and_kleene", "and_not", "or_", "or_kleene")},
    **dict.fromkeys(("add", "multiply", "power", "subtract"), (NUMBERS, pa.scalar(2.0))),
    **dict.fromkeys(("equal", "greater", "greater_equal"), (NUMBERS, pa.scalar(2.0))),
    **dict.fromkeys(("less", "less_equal", "not_equal"), (NUMBERS, pa.scalar(2.0))),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_function_called_by_name_gives_what_the_whole_library_gives(name: str) -> None:
    arguments = GIVEN[name]
    assert getattr(compute, name) is not getattr(whole, name)
    result = getattr(compute, name)(*arguments)
    assert str(result) == str(getattr(whole, name)(*arguments))


def test_all_other_functions_are_those_of_the_library() -> None:
    assert compute.fill_null is whole.fill_null


def test_a_function_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = compute.no_such_function
