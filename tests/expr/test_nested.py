from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import RowFailure, SchemaError
from penstock.expr import col, lower_python
from tests.support.evaluation import FAILED, run

A = col("a")
STRING = pa.string()


@pytest.mark.parametrize(
    ("path", "type", "text", "expected"),
    [
        ("user.id", "int64", '{"user": {"id": 7}}', 7),
        ("items[0].price", "float64", '{"items": [{"price": 2.5}]}', 2.5),
        ("[1]", "string", '["a", "b"]', "b"),
        ("a", "bool", '{"a": true}', True),
        ("a", "float64", '{"a": 3}', 3.0),
        ("a", "int64", "{}", None),
        ("a", "int64", '{"a": null}', None),
        ("a.b", "int64", '{"a": 5}', None),
        ("a[3]", "int64", '{"a": [1]}', None),
        ("a", "int64", "[1]", None),
        ("a", "string", '{"a": "\\u00e9"}', "é"),
        ("a", "int64", '{"a": "7"}', FAILED),
        ("a", "string", '{"a": 7}', FAILED),
        ("a", "int64", '{"a": 1.0}', FAILED),
        ("a", "int64", '{"a": true}', FAILED),
        ("a", "string", '{"a": {}}', FAILED),
        ("a", "int8", '{"a": 128}', FAILED),
        ("a", "float64", '{"a": 1e999}', FAILED),
        ("a", "float64", '{"a": ' + "1" * 400 + "}", FAILED),
        ("a", "float64", '{"a": NaN}', FAILED),
        ("a", "int64", '{"a": 1, "a": 2}', FAILED),
        ("a", "string", '{"a": "\\ud800"}', FAILED),
        ("a", "int64", "{", FAILED),
        ("a", "int64", "", FAILED),
        ("a", "int64", "[" * 100_000, FAILED),
    ],
)
def test_a_scalar_out_of_json(path: str, type: str, text: str, expected: object) -> None:
    assert run(A.json(path, type), [text, None, text], STRING) == [expected, None, expected]


@pytest.mark.parametrize("path", ["", ".a", "a.", "a..b", "a[", "a[x]", "a]b", 5])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(SchemaError, match="is not a path into JSON") as caught:
        A.json(path, "int64")
    assert "user.id" in str(caught.value.hint)


def test_json_has_no_times() -> None:
    with pytest.raises(SchemaError, match="JSON has no timestamp") as caught:
        A.json("a", "timestamp")
    assert '.json("a", "string").cast("timestamp")' in str(caught.value.hint)


def test_malformed_json_is_named_in_the_reason() -> None:
    with pytest.raises(RowFailure, match="malformed JSON"):
        lower_python(A.json("a", "int64"), pa.schema({"a": STRING}))({"a": "{"})
