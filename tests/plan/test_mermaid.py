from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from tests.support import plan_graphs as graphs


def draw_named(name: str, branch: str = "b") -> str:
    graph = ps.PipeGraph(name)
    source = graph.source(ps.read.rows([], schema={"a": "int64"}), name=name)
    branches: dict[str, Any] = {branch: col("a") > 0, f"{branch}2": col("a") < 0}
    source.split(**branches)[branch].sink(ps.write.memory())
    return graph.explain(format="mermaid")


def test_quotes_tags_and_hashes_are_escaped() -> None:
    text = draw_named('say "hi" <script> & #35;')
    assert "say #34;hi#34; #60;script#62; #38; #35;35;<br/>" in text


def test_a_name_cannot_smuggle_in_a_directive() -> None:
    assert "%%{" not in draw_named("%%{init: {'theme': 'dark'}}%%")


def test_a_branch_name_with_bars_stays_inside_its_quotes() -> None:
    assert '-->|"a|b"|' in draw_named("source", branch="a|b")


TAKEN = ("late", "errors", "name", "on_error")  # side outputs, and options of split
BRANCHES = st.text(min_size=1, max_size=20).filter(lambda name: name.strip() and name not in TAKEN)
NAMES = BRANCHES.filter(str.isprintable)
LINE = re.compile(
    r'flowchart LR|  subgraph g\d+ \[" "\]|  end|'
    r' +s\d+(\(\[|\[\(|\{|\[\[|\{\{|\[)"[^"\n`%]*"(\]\)|\)\]|\}|\]\]|\}\}|\])|'
    r'  s\d+ (-->|-\.->)(\|"[^"\n`%]*"\|)? s\d+|'
    r"  (classDef|class|linkStyle) [\w#:,. -]+"
)


@pytest.mark.slow
@given(name=NAMES, branch=BRANCHES)
@settings(deadline=None)
def test_whatever_the_names_every_line_is_a_line_of_mermaid(name: str, branch: str) -> None:
    text = draw_named(name, branch)
    assert [line for line in text.rstrip("\n").split("\n") if not LINE.fullmatch(line)] == []


def test_late_errors_and_control_are_dotted_and_rows_are_not() -> None:
    text = graphs.join().explain(format="mermaid") + graphs.feedback().explain(format="mermaid")
    dotted = re.findall(r'-\.->\|"(\w+)"\|', text)
    assert sorted(dotted) == ["late", "late_right", "limit"]


def test_long_texts_are_cut() -> None:
    graph = ps.PipeGraph("g")
    graph.source(ps.read.rows([], schema={"a": "int64"})).filter(col("a").is_in(list(range(200))))
    assert max(map(len, graph.explain(format="mermaid").splitlines())) < 160


def test_an_empty_graph_is_an_empty_flowchart() -> None:
    assert ps.PipeGraph("nothing").explain(format="mermaid") == "flowchart LR\n"
