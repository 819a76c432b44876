"""What Delta tables hold, and what their log says of files.

All types of Penstock have one in Delta. Times with a zone are kept as instants, in UTC; those without one are
of type timestamp_ntz, a feature that old readers of Delta do not know. Delta refuses some characters in the
names of columns, names that differ by case only, and decimals of a negative scale.

The log says for each file which partition it belongs to, how many rows it has, and between which bounds they
lie, so that readers can skip it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.writers.partition_folders import NULL, column_prefix
from penstock.errors import SchemaError

_UTC = pa.timestamp("us", "UTC")
_NOT_IN_NAMES = " ,;{}()\n\t="
_FEATURES = {"appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz", "v2Checkpoint"}
"""Those of a table that leave files as they are, so that rows can be appended without regard to them."""
_UNUSED = {"checkConstraints", "columnMapping", "generatedColumns", "identityColumns"}
"""Those that do not count where they are not in use, such as constraints of a table that has none."""
_RULES = ("delta.constraints.", "delta.generationExpression", "delta.identity.", "delta.invariants")
_MAX_STATS = 32  # columns with statistics, and characters of a text there: Delta's own limits


def to_delta_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as a Delta table has them: times that have a zone in UTC, and the rest as it is."""
    return pa.schema([field.with_type(_to_delta_type(field.type)) for field in schema])


def _to_delta_type(type_: pa.DataType) -> pa.DataType:
    if kind.is_timestamp(type_) and type_.tz:
        return _UTC
    if kind.is_list(type_):
        return pa.list_(type_.value_field.with_type(_to_delta_type(type_.value_type)))
    if kind.is_struct(type_):
        return pa.struct([field.with_type(_to_delta_type(field.type)) for field in type_])
    return type_


def check_fields(fields: Any, inside: str = "") -> None:
    """Raise SchemaError for columns, or fields of the struct `inside`, that Delta does not know."""
    by_lower_case: dict[str, str] = {}
    for field in fields:
        name, type_ = f"{inside}{field.name}", field.type
        other = by_lower_case.setdefault(field.name.lower(), name)
        if other != name:
            raise SchemaError(
                f'columns "{other}" and "{name}" are one in Delta, which takes no regard to case',
                hint="rename one of them before the sink",
            )
        bad = sorted(set(field.name) & set(_NOT_IN_NAMES))
        if bad:
            raise SchemaError(
                f'column "{name}" has {bad[0]!r} in its name, which Delta does not allow',
                hint="rename it before the sink",
            )
        while kind.is_list(type_):
            type_ = type_.value_type
        if kind.is_decimal(type_) and not 0 <= type_.scale <= type_.precision:
            raise SchemaError(
                f'column "{name}" of type {type_} is no decimal that Delta knows',
                hint="cast it to one with a scale between zero and its number of digits",
            )
        if kind.is_struct(type_):
            if not type_.num_fields:
                raise SchemaError(
                    f'column "{name}" is a struct without fields, which files cannot hold',
                    hint="leave it out before the sink",
                )
            check_fields(type_, f"{name}.")


def describe_difference(table: Any, schema: Any, partition_by: tuple[str, ...]) -> str | None:
    """Say why rows of a Delta schema cannot be appended to a table, in words that follow `a table that`.

    Return None if they can.
    """
    theirs, ours = ({field.name: field for field in s.fields} for s in (table.schema(), schema))
    for name, field in theirs.items():
        if name not in ours:
            return f'has a column "{name}", and the rows have none'
        if field.type != ours[name].type:
            return (
                f'has a column "{name}" of type {_show(field)}, and that of the rows is {_show(ours[name])}'
            )
        if not field.nullable:
            return f'has no null in column "{name}", and the rows may have'
        rules = [key for key in field.metadata if key.startswith(_RULES)]
        if rules:
            return f'has a rule for column "{name}" ({rules[0]}), which is not checked here'
    missing = [name for name in ours if name not in theirs]
    if missing:
        return f'has no column "{missing[0]}"'
    metadata = table.metadata()
    if tuple(metadata.partition_columns) != partition_by:
        return (
            f"is partitioned by {', '.join(metadata.partition_columns) or 'no column'}, "
            f"and not by {', '.join(partition_by) or 'no column'}"
        )
    rules = [name for name in metadata.configuration if name.startswith(_RULES)]
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        rules.append("delta.columnMapping.mode")
    for name in (*rules, *(table.protocol().writer_features or ())):
        if name not in _FEATURES | _UNUSED:
            return f"has {name}, which this writer does not know"
    return None


def parse_partition_values(folder: str, columns: Sequence[str], schema: pa.Schema) -> dict[str, str | None]:
    """Return the values that name a partition folder, as text, by Delta's rules for its types.

    >>> parse_partition_values("day=2026-01-31/country=a%20b", ["day", "country"], pa.schema([
    ...     ("country", pa.string()), ("day", pa.date32())]))
    {'day': '2026-01-31', 'country': 'a b'}
    """
    values: dict[str, str | None] = {}
    for name, part in zip(columns, folder.split("/") if columns else (), strict=True):
        text, type_ = unquote(part.removeprefix(column_prefix(name))), schema.field(name).type
        if kind.is_timestamp(type_) and type_.tz:
            text = text.replace(" ", "T")
        values[name] = None if text == NULL else text
    return values


def collect_statistics(file: Path, schema: pa.Schema) -> dict[str, Any]:
    """Return what a file's footer says of its rows: their number, and of columns the nulls and the bounds.

    Bounds are those of whole numbers, dates, times and short texts. Floats have none: Delta puts NaN behind
    all numbers, and parquet leaves it out. Columns inside others have no statistics.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    statistics: dict[str, Any] = {"numRecords": metadata.num_rows}
    lower, upper, nulls = {}, {}, {}
    for index in range(min(metadata.num_columns, _MAX_STATS)):
        column = metadata.schema.column(index)
        name, is_flat = column.path, column.max_definition_level == 1 and column.max_repetition_level == 0
        if not is_flat or name not in schema.names:
            continue
        groups = [metadata.row_group(i).column(index).statistics for i in range(metadata.num_row_groups)]
        if not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        bounds = _find_bounds(groups, schema.field(name).type)
        if bounds is not None:
            lower[name], upper[name] = bounds
    return statistics | {"minValues": lower, "maxValues": upper, "nullCount": nulls}


def _find_bounds(groups: Sequence[Any], type_: pa.DataType) -> tuple[object, object] | None:
    """Return the least and the greatest value of a column, as JSON has them; None if that is not known."""
    if not (
        kind.is_integer(type_) or kind.is_date(type_) or kind.is_timestamp(type_) or kind.is_string(type_)
    ):
        return None
    filled = [group for group in groups if group.num_values]
    if not filled or not all(group.has_min_max for group in filled):
        return None
    try:
        bounds = min(group.min for group in filled), max(group.max for group in filled)
    except (ValueError, OverflowError):  # a time that Python does not know
        return None
    if any(isinstance(bound, str) and len(bound) > _MAX_STATS for bound in bounds):
        return None
    return _to_json(bounds[0]), _to_json(bounds[1])


def _to_json(bound: object) -> object:
    """Return a bound as Delta's statistics have it.

    >>> _to_json(datetime(2026, 1, 31, 12))
    '2026-01-31T12:00:00.000000'
    """
    if isinstance(bound, datetime):
        return bound.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return bound.isoformat() if isinstance(bound, date) else bound


def _show(field: Any) -> str:
    """Return the type of a field of Delta's, as its log has it."""
    type_ = json.loads(field.to_json())["type"]
    return str(type_) if isinstance(type_, str) else json.dumps(type_)
