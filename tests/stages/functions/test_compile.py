"""Row functions that are compiled: never another answer than Python's, and a reason where they are not."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.protocol import SourceBatch
from penstock.errors import FunctionError
from penstock.expr import col
from penstock.operators.function import batch, row_function
from penstock.operators.rows import Filter, Map
from penstock.stages.functions.compile import CompiledFunction
from tests.support.plans import batch as cut_batch
from tests.support.sizes import set_sizes
from tests.support.stage_steps import Case, agree

UP = pa.schema(
    [
        ("t", pa.int64()),
        ("k", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("z", pa.float32()),
        ("b", pa.bool_()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us")),
    ]
)
FLOATS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, 2.0**53 + 2]),
    st.floats(),
    st.integers(-3, 3).map(float),
)
rows = st.lists(
    st.tuples(
        st.just(0),
        st.sampled_from(["a", None]),
        FLOATS,
        FLOATS,
        st.floats(width=32),
        st.one_of(st.none(), st.booleans()),
        st.one_of(st.none(), st.integers(-(10**6), 10**6)),
        st.none(),
    ),
    max_size=12,
)
RATE = 1.5
NOTHING = math.nan
LIMIT = 3


@dataclass
class Price:
    k: str
    price: float


class Both(NamedTuple):
    total: float
    big: bool


def set_price(row: Any) -> Price:
    """Uses a constant, a local name and several ways out."""
    price = row.x * RATE
    if row.b and price > LIMIT:
        price += 1
    elif math.isnan(row.y):
        return Price(row.k, 0)
    return Price(price=price / row.y, k=row.k)


def both(row: Any) -> Both:
    total = abs(row.x) - float(row.z)
    return Both(total, total >= row.y and not row.b)


def choose_value(row: Any) -> dict[str, Any]:
    value = 1 if row.b else row.x
    return {**row, "x": -row.y if math.isfinite(row.y) else value * row.z, "b": 0.0 < row.x <= 2 or row.b}


def count_down(row: Any) -> dict[str, Any]:
    left = row.n * 3 - 7
    if left < 0:
        left = -left
    return {"k": row["k"], "n": left // row.n + left % 5, "x": float(left) / row.n, "b": left == row.n & 6}


def widest(row: Any) -> bool:
    return row.x > row.y or math.isinf(row.x) or math.fabs(row.y) < RATE


WHOLE_ROW = {field.name: field.type for field in UP}
COUNTED = {"k": "string", "n": "int64", "x": "float64", "b": "bool"}
MAPS: dict[str, tuple[Callable[[Any], Any], Any, bool]] = {
    "dataclass": (set_price, None, False),
    "NamedTuple": (both, None, False),
    "dict with all of the row": (choose_value, WHOLE_ROW, False),
    "whole numbers": (count_down, COUNTED, True),
    "lambda": (
        lambda row: {"k": row.k, "x": row.x + row.y if row.b else 0.5},
        {"k": "string", "x": "float64"},
        False,
    ),
}
POLICIES = st.sampled_from(["fail", "skip", "dead_letter"])
LAW = settings(deadline=None, max_examples=60)


def compiled(
    function: Any, schema: Any = None, *, predicate: bool = False, wraps: bool = False
) -> CompiledFunction:
    user_function = row_function(function, schema=schema)
    return CompiledFunction(
        user_function, UP, None if predicate else user_function.schema, wraps=wraps, compile_after=0
    )


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile from the first row on."""
    set_sizes(monkeypatch, compile_after=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
@LAW
@given(rows=rows, policy=POLICIES)
def test_a_compiled_map_gives_what_python_gives(name: str, rows: list[Any], policy: str) -> None:
    function, schema, wraps = MAPS[name]
    assert compiled(function, schema, wraps=wraps).explain()[0].endswith("rows with nulls run in Python")
    op = Map(function, schema, compile=wraps, on_error=policy)
    agree(Case(op, [cut_batch(rows, UP)], schema=UP))


@pytest.mark.slow
@LAW
@given(rows=rows, policy=POLICIES)
def test_a_compiled_filter_keeps_what_python_keeps(rows: list[Any], policy: str) -> None:
    assert compiled(widest, predicate=True).explain()[0].endswith("rows with nulls run in Python")
    agree(Case(Filter(widest, on_error=policy), [cut_batch(rows, UP)], schema=UP))


_NUMBERS = count()


def from_text(text: str) -> Callable[[Any], Any]:
    """A function whose text Python knows."""
    name = f"<row {next(_NUMBERS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"math": math}
    exec(compile(text, name, "exec", dont_inherit=True), space)
    function: Callable[[Any], Any] = space["made"]
    return function


@st.composite
def numbers(draw: st.DrawFn, depth: int = 3) -> str:
    """The text of an expression that is a number."""
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind <= 1:
        return draw(st.sampled_from(["row.x", "row.y", "row.z", "0.5", "2", "-1.0", "1e308", "0"]))
    inner = numbers(depth - 1)
    if kind <= 3:
        return f"({draw(inner)} {draw(st.sampled_from('+-*/'))} {draw(inner)})"
    if kind == 4:
        return f"{draw(st.sampled_from(['abs', '-', '+']))}({draw(inner)})"
    return f"({draw(inner)} if {draw(truths(depth - 1))} else {draw(inner)})"


@st.composite
def truths(draw: st.DrawFn, depth: int = 3) -> str:
    """The text of an expression that is true or false."""
    kind = draw(st.integers(0, 4)) if depth else 0
    if kind == 0:
        return draw(st.sampled_from(["row.b", "True"]))
    if kind <= 2:
        compared = draw(st.sampled_from(["<", "<=", "==", "!=", ">"]))
        return f"({draw(numbers(depth - 1))} {compared} {draw(numbers(depth - 1))})"
    inner = truths(depth - 1)
    if kind == 3:
        return f"({draw(inner)} {draw(st.sampled_from(['and', 'or']))} {draw(inner)})"
    return f"(not {draw(inner)})"


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(numbers(), min_size=3, max_size=3), truths(), st.lists(rows, min_size=1, max_size=3))
def test_whatever_is_compiled_of_a_random_function_changes_no_answer(
    parts: list[str], truth: str, batches: list[list[Any]]
) -> None:
    a, b, c = parts
    text = f"def made(row):\n    a = {a}\n    if {truth}:\n        return {{'a': a, 'b': {b}}}\n"
    function = from_text(text + f"    return {{'a': {c}, 'b': a}}\n")
    op = Map(function, {"a": "float64", "b": "float64"}, on_error="dead_letter")
    agree(Case(op, [cut_batch(rows, UP) for rows in batches], schema=UP))


@pytest.mark.slow
def test_a_row_on_which_the_compiled_function_raises_is_found_by_python() -> None:
    rows = [(0, "a", 1.0, y, 0.0, False, 1, None) for y in (2.0, 0.0, 4.0)]
    op = Map(set_price, on_error="dead_letter")
    agree(Case(op, [cut_batch(rows, UP)], schema=UP))


def test_a_constant_that_changes_ends_the_compiled_function(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(widest, predicate=True)
    batch_ = cut_batch([(0, "a", 1.0, 2.0, 0.0, False, 1, None)], UP).rows
    first = program.results(batch_)
    assert first is not None
    monkeypatch.setattr("tests.stages.functions.test_compile.RATE", 5.0)
    assert program.results(batch_) is None
    assert program.explain() == [
        "row function widest runs in Python, row by row: a value that it uses from outside has changed"
    ]


def test_numba_is_not_asked_while_there_are_few_rows() -> None:
    program = CompiledFunction(row_function(widest), UP, None, compile_after=2)
    batch_ = cut_batch([(0, "a", 1.0, 2.0, 0.0, False, 1, None)], UP).rows
    assert [program.results(batch_) is None for _ in range(3)] == [True, True, False]


def test_whole_numbers_wrap_where_the_user_accepts_it() -> None:
    program = compiled(lambda row: {"n": row.n + 1}, {"n": "int64"}, wraps=True)
    results = program.results(cut_batch([(0, "a", 1.0, 2.0, 0.0, False, 2**63 - 1, None)], UP).rows)
    assert results is not None
    assert results.columns["n"].tolist() == [-(2**63)]


Unlike = dict
Made: Any = Price


class Callable_:
    def __call__(self, row: Any) -> bool:
        return True


@dataclass
class CheckedRow:
    x: float

    def __post_init__(self) -> None:
        self.x += 1


def with_default(row: Any, more: int = 1) -> bool:
    return bool(row.b)


def loop_forever(row: Any) -> bool:
    for _ in range(3):
        pass
    return bool(row.b)


def forgetful(row: Any) -> None:
    if row.b:
        pass


def half_set(row: Any) -> bool:
    if row.b:
        limit = 1.0
    return bool(limit < row.x)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (Callable_(), "it is not a plain function"),
        (with_default, "it takes more than a row"),
        (loop_forever, "of it is more than numbers and choices"),
        (forgetful, "it can come to its end without giving anything"),
        (half_set, "limit may be without a value"),
        (math.isnan, "it is not a plain function"),
        (
            lambda row: row.n > 1,
            "column n is of whole numbers, which wrap at 64 bits; compile=True accepts that",
        ),
        (lambda row: row.k > "a", "column k is string"),
        (lambda row: row.at > row.at, "column at is timestamp[us]"),
        (lambda row: row.nope > 1, "there is no column nope"),
        (lambda row: row.x, "what it gives is a float"),
        (lambda row: row.x**2 > 1, "pow is not the same outside Python"),
        (lambda row: row.x // 2 > 1, "floordiv is not the same outside Python"),
        (lambda row: math.sqrt(row.x) > 1, "math.sqrt is not the same outside Python"),
        (lambda row: max(row.x) > 1, "max is not the same outside Python"),
        (lambda row: row.x and row.b, "`row.x` is a float and is used as a bool"),
        (lambda row: row.b + 1.0 > 1, "it computes with bools"),
        (lambda row: row.b > 1.0, "it compares a bool with a float"),
        (lambda row: row.x is None, "`row.x is None` is not a comparison of numbers"),
        (lambda row: row.x > 2 * 3, "it computes with whole numbers of the text alone"),
        (lambda row: (row.x if row.b else 1) + 1 > 0, "it computes with what may be a whole number"),
        (lambda row: (row.x if row.b else True) > 0, "one value is a float on one way and a bool on another"),
        (lambda row: -(row.x if row.b else 0) > 0, "usub of a float or a whole number is not the same"),
        (lambda row: row.x > 2**53 + 1, "pow is not the same outside Python"),
        (lambda row: row.x > 9007199254740993, "it uses 9007199254740993, which is not"),
        (lambda row: row.x > NOTHING, "NOTHING is NaN, which has no spelling"),
        (lambda row: row.keys == 1, "it uses row.keys"),
        (lambda row: True, "it does not look at the row"),
        (lambda row: [row.b][0], "is more than numbers and choices"),
    ],
)
def test_a_predicate_that_stays_in_python_says_why(function: Any, why: str) -> None:
    (line,) = compiled(function, predicate=True).explain()
    assert "runs in Python, row by row: " in line
    assert why in line


@pytest.mark.parametrize(
    ("function", "schema", "why"),
    [
        (lambda row: {"x": row.x}, {"x": "float64"}, "it computes nothing"),
        (lambda row: {"x": row.b}, {"x": "float64"}, "x is a bool"),
        (lambda row: {"n": 1.5 * row.x}, {"n": "int64"}, "n is a float"),
        (lambda row: {"n": 3, "x": row.x * 2}, {"n": "int32", "x": "float64"}, "it gives n as int32"),
        (lambda row: {"y": row.x + 1}, {"x": "float64"}, "it gives other columns than it declares"),
        (lambda row: Unlike(x=row.x), {"x": "float64"}, "Unlike is more than its fields"),
        (lambda row: CheckedRow(row.x), {"x": "float64"}, "CheckedRow is more than its fields"),
        (
            lambda row: Made(row.k),
            {"k": "string", "price": "float64"},
            "does not name all fields of Made",
        ),
        (lambda row: {row.k: 1.0}, {"x": "float64"}, "the names of its columns are not written out"),
        (lambda row: row, {"x": "float64"}, "`row` is not a row with its columns written out"),
        (
            lambda row: {"at": row.at, "x": row.x + 1},
            {"at": "string", "x": "float64"},
            "it gives at as string",
        ),
    ],
)
def test_a_map_that_stays_in_python_says_why(function: Any, schema: Any, why: str) -> None:
    (line,) = compiled(function, schema).explain()
    assert why in line


@pytest.mark.slow
def test_a_time_beyond_the_years_of_python_fails_its_row_as_in_python() -> None:
    rows = [(0, "a", 1.0, 2.0, 0.0, False, 1, None), (0, "b", 1.0, 2.0, 0.0, False, 1, None)]
    for micros in (2**60, 5):
        rows_ = cut_batch(rows, UP).rows
        times = pa.array([micros, None], pa.int64()).view(pa.timestamp("us"))
        moved = SourceBatch(rows_.set_column(7, UP.field("at"), times))
        agree(Case(Map(choose_value, WHOLE_ROW, on_error="dead_letter"), [moved], schema=UP))


def test_two_lambdas_on_one_line_are_told_apart() -> None:
    first, second = (lambda row: row.x > 1.0), (lambda row: row.x > 2.0)
    programs = [compiled(program, predicate=True).program for program in (first, second)]
    assert [program and program.text.splitlines()[1] for program in programs] == [
        "    return (_0 > 1.0,)",
        "    return (_0 > 2.0,)",
    ]


def test_text_that_has_changed_since_it_was_read_is_not_believed() -> None:
    function = from_text("def made(row):\n    return row.x > 1.0\n")
    name = function.__code__.co_filename
    changed = "def made(row):\n    return row.x > 2.0\n"
    linecache.cache[name] = (len(changed), None, changed.splitlines(keepends=True), name)
    assert "has changed since it was read" in compiled(function, predicate=True).explain()[0]


def test_a_constant_of_an_enclosing_function_is_written_in() -> None:
    def over(limit: float) -> Callable[[Any], bool]:
        return lambda row: row.x > limit

    program = compiled(over(2.5), predicate=True).program
    assert program is not None
    assert "_0 > 2.5" in program.text


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (
            lambda: Map(batch(lambda rows: rows), compile=True),
            "compile=True is for row functions without state, and map has batch function",
        ),
        (
            lambda: Filter(batch(lambda rows: rows), compile=True),
            "compile=True is for row functions without state, and filter has batch function",
        ),
        (
            lambda: Map(lambda row, state: {}, {"x": "float64"}, list, compile=True),
            "compile=True is for row functions without state, and map has a function with state",
        ),
        (lambda: Map(set_price, compile=col("x")), 'compile=col("x") is not True or False'),  # type: ignore[arg-type]
    ],
)
def test_asking_to_compile_what_is_not_a_row_function_is_refused(make: Callable[[], Any], fact: str) -> None:
    with pytest.raises(FunctionError) as caught:
        make()
    assert caught.value.fact.startswith(fact)
