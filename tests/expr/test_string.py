from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr import Expr, col, concat
from tests.support.evaluation import run

A = col("a")
STRING, LIST = pa.string(), pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("expr", "given", "expected"),
    [
        (A.str.lower(), "ÀBc", "Àbc"),
        (A.str.upper(), "ßàb", "ßàB"),
        (A.str.length(), "e\u0301😀", 3),
        (A.str.length(), "", 0),
        (A.str.contains("b."), "ab.c", True),
        (A.str.contains("b."), "abxc", False),
        (A.str.contains(""), "", True),
        (A.str.starts_with("é"), "éa", True),
        (A.str.ends_with("a"), "éa", True),
        (A.str.ends_with("é"), "éa", False),
        (A.str.slice(1, 2), "a😀éb", "😀é"),
        (A.str.slice(-2), "a😀éb", "éb"),
        (A.str.slice(-9, 1), "ab", "a"),
        (A.str.slice(5), "ab", ""),
        (A.str.strip(), "\t a b\r\n", "a b"),
        (A.str.strip(), "\u00a0a", "\u00a0a"),
        (A.str.strip("xé"), "xéaéx", "a"),
        (A.str.replace("aa", "b"), "aaa", "ba"),
        (A.str.replace(".", ""), "a.b.", "ab"),
        (A.str.split(","), "a,,b", ["a", "", "b"]),
        (A.str.split(","), "", [""]),
        (A.str.split(",").list.length(), "a,b", 2),
        (A.str.split(",").list.item(1), "a,b", "b"),
        (A.str.split(",").list.item(-1), "a,b", "b"),
        (A.str.split(",").list.item(2), "a,b", None),
        (concat(A, "-", A), "é", "é-é"),
    ],
)
def test_functions_of_text(expr: Expr, given: str, expected: object) -> None:
    assert run(expr, [given, None], STRING) == [expected, None]


def test_items_of_a_list_column() -> None:
    lists = [[1, None], [], None, [5]]
    assert run(A.list.item(0), lists, LIST) == [1, None, None, 5]
    assert run(A.list.item(-1), lists, LIST) == [None, None, None, 5]
    assert run(A.list.length(), lists, LIST) == [2, 0, None, 1]


def test_a_field_of_a_null_struct_is_null() -> None:
    type = pa.struct({"x": pa.int64()})
    assert run(A.field("x"), [{"x": 1}, {"x": None}, None], type) == [1, None, None]


@pytest.mark.parametrize(
    ("function", "arguments", "fact"),
    [
        ("contains", (5,), "contains needs plain text, not 5"),
        ("starts_with", (A,), "starts_with needs plain text"),
        ("split", ("",), "split cannot look for empty text"),
        ("replace", ("", "x"), "replace cannot look for empty text"),
        ("replace", ("x", 1), "replace needs plain text, not 1"),
        ("strip", ("",), "strip needs characters"),
        ("slice", (1.5,), "slice needs plain whole numbers"),
        ("slice", (0, True), "slice needs plain whole numbers"),
        ("slice", (0, -1), "slice cannot take -1 characters"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    function: str, arguments: tuple[object, ...], fact: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        getattr(A.str, function)(*arguments)
    assert fact in caught.value.fact
    assert caught.value.hint


def test_an_item_that_is_no_number_is_refused() -> None:
    with pytest.raises(SchemaError, match="a list has no item 'x'"):
        A.list.item("x")  # type: ignore[arg-type]  # the mistake under test


def test_concat_of_nothing_is_refused() -> None:
    with pytest.raises(SchemaError, match="nothing to join"):
        concat()
