"""What csv and jsonl output looks like, byte by byte."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

from penstock.connect.writers.text_files import encode_csv, encode_jsonl

ROWS = pa.record_batch(
    {
        "s": pa.array(['say "hi", \n', "", None]),
        "f": pa.array([math.nan, -math.inf, 1e20]),
        "t": pa.array(
            [datetime(1969, 12, 31, 23, 59, 59, 5), None, datetime(2026, 1, 31)], pa.timestamp("us")
        ),
        "z": pa.array([0, None, 1], pa.timestamp("us", "Europe/Rome")),
        "d": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
        "m": pa.array([Decimal("1.50"), None, Decimal("-0.01")]),
        "b": pa.array([True, False, None]),
    }
)


def test_csv_quotes_what_it_must_and_leaves_nulls_empty() -> None:
    assert encode_csv(ROWS).decode() == (
        '"say ""hi"", \n",nan,1969-12-31T23:59:59.000005,1970-01-01T00:00:00.000000Z,0001-01-01,1.50,true\n'
        '"",-inf,,,,,false\n'
        ",1e+20,2026-01-31T00:00:00.000000,1970-01-01T00:00:00.000001Z,9999-12-31,-0.01,\n"
    )


def test_jsonl_is_strict_json_with_times_in_utc() -> None:
    assert encode_jsonl(ROWS).decode() == (
        '{"s":"say \\"hi\\", \\n","f":"NaN","t":"1969-12-31T23:59:59.000005Z",'
        '"z":"1970-01-01T00:00:00.000000Z","d":"0001-01-01","m":"1.50","b":true}\n'
        '{"s":"","f":"-Infinity","t":null,"z":null,"d":null,"m":null,"b":false}\n'
        '{"s":null,"f":1e+20,"t":"2026-01-31T00:00:00.000000Z",'
        '"z":"1970-01-01T00:00:00.000001Z","d":"9999-12-31","m":"-0.01","b":null}\n'
    )


def test_jsonl_nests_lists_and_structs_and_encodes_bytes() -> None:
    rows = pa.record_batch(
        {
            "l": pa.array([[1], None, []], pa.list_(pa.int64())),
            "s": pa.array([{"x": [b"\x00"]}, {"x": None}, None], pa.struct([("x", pa.list_(pa.binary()))])),
        }
    )
    assert encode_jsonl(rows).decode() == (
        '{"l":[1],"s":{"x":["AA=="]}}\n{"l":null,"s":{"x":null}}\n{"l":[],"s":null}\n'
    )
    assert encode_jsonl(rows.slice(2)).decode() == '{"l":[],"s":null}\n'
