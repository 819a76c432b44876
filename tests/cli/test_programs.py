"""A user's file is run, its graph is found, and every way in which that can fail is told clearly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.command_line import Outcome, penstock

GRAPH = """
import penstock as ps

{variable} = ps.PipeGraph("{name}")
{variable}.source(ps.read.rows([{{"a": 1}}, {{"a": 2}}]), name="numbers").sink(ps.write.memory(), name="end")
"""


def write(folder: Path, text: str, name: str = "views.py") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def one(variable: str = "graph", name: str = "views") -> str:
    return GRAPH.format(variable=variable, name=name)


def run_explain(*words: str) -> Outcome:
    return penstock("explain", *words)


def test_the_only_graph_of_a_file_is_taken(tmp_path: Path) -> None:
    done = run_explain(write(tmp_path, one()))
    assert (done.code, "numbers" in done.out) == (0, True)


def test_what_stands_below_the_main_guard_does_not_run(tmp_path: Path) -> None:
    guarded = one() + '\nif __name__ == "__main__":\n    raise RuntimeError("must not run")\n'
    assert run_explain(write(tmp_path, guarded)).code == 0


@pytest.mark.parametrize("wanted", ["second", "two"])
def test_one_of_several_graphs_is_chosen_by_variable_or_name(tmp_path: Path, wanted: str) -> None:
    file = write(tmp_path, one("first", "one") + one("second", "two"))
    done = run_explain(file, "--graph", wanted)
    assert (done.code, done.out.splitlines()[0]) == (0, "two: 2 steps, 1 source, 1 sink")


def test_one_graph_under_two_names_is_one_graph(tmp_path: Path) -> None:
    assert run_explain(write(tmp_path, one() + "again = graph\n")).code == 0


def test_several_graphs_without_a_choice_are_listed(tmp_path: Path) -> None:
    file = write(tmp_path, one("first", "one") + one("second", "two"))
    done = run_explain(file)
    assert done.code == 2
    assert done.err.splitlines() == [
        f'GraphError: "{file}" has 2 graphs: first ("one"), second ("two")',
        "  hint:   choose one, such as --graph first",
    ]


def test_an_unknown_graph_is_refused_with_the_known_ones_nearest_first(tmp_path: Path) -> None:
    file = write(tmp_path, one("first", "one") + one("second", "two"))
    done = run_explain(file, "--graph", "secnd")
    assert done.code == 2
    assert done.err.splitlines() == [
        f'GraphError: "{file}" has no graph named "secnd"',
        '  detail: graphs: second ("two"), first ("one")',
    ]


def test_a_name_that_two_graphs_have_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, one("first", "same") + one("second", "same"))
    assert 'has 2 graphs named "same"' in run_explain(file, "--graph", "same").err


def test_a_file_without_a_graph_says_what_to_write(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\n")
    done = run_explain(file)
    assert done.code == 2
    assert done.err.splitlines() == [
        f'GraphError: "{file}" has no graph at its top level',
        "  detail: a graph made inside a function is not found",
        '  hint:   write: graph = ps.PipeGraph("name")',
    ]


def test_a_missing_file_names_the_python_files_beside_it(tmp_path: Path) -> None:
    write(tmp_path, one(), "views.py")
    write(tmp_path, one(), "other.py")
    done = run_explain(str(tmp_path / "view.py"))
    assert done.code == 2
    assert f'there is no file "{tmp_path / "view.py"}"' in done.err
    assert "Python files there: views.py, other.py" in done.err
    assert f"did you mean {tmp_path / 'views.py'}?" in done.err


def test_a_missing_file_in_an_empty_folder_is_refused_as_well(tmp_path: Path) -> None:
    done = run_explain(str(tmp_path / "none" / "view.py"))
    assert (done.code, "name a file that builds a graph" in done.err) == (2, True)


@pytest.mark.parametrize("name", ["views.txt", "folder"])
def test_something_that_is_no_python_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "views.txt").write_text(one())
    done = run_explain(str(tmp_path / name))
    assert (done.code, "is not a Python file" in done.err) == (2, True)


def test_an_exception_of_the_file_shows_the_user_s_frames_only(tmp_path: Path) -> None:
    file = write(tmp_path, "def broken():\n    return 1 / 0\n\nbroken()\n")
    done = run_explain(file)
    assert done.code == 2
    assert done.err.splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 4, in <module>',
    ]
    assert done.err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "penstock/cli" not in done.err


def test_a_syntax_error_shows_its_line_and_no_frame_of_ours(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\ny = = 2\n")
    done = run_explain(file)
    assert done.code == 2
    assert f'File "{file}", line 2' in done.err
    assert "SyntaxError" in done.err
    assert "penstock/cli" not in done.err


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "views.py"
    file.write_bytes(b"\x00\x01\xff")
    done = run_explain(str(file))
    assert (done.code, "penstock/cli" in done.err) == (2, False)


def test_a_file_that_exits_by_itself_is_told_to_guard_it(tmp_path: Path) -> None:
    done = run_explain(write(tmp_path, "import sys\nsys.exit(7)\n"))
    assert done.code == 2
    assert "ended itself (exit code 7)" in done.err
    assert 'if __name__ == "__main__":' in done.err


def test_a_mistake_in_the_graph_is_shown_with_the_user_s_line_and_no_traceback(tmp_path: Path) -> None:
    text = (
        'import penstock as ps\ngraph = ps.PipeGraph("views")\n'
        'graph.source(ps.read.rows([{"price": 1}])).filter(ps.col("pricee") > 1)\n'
    )
    file = write(tmp_path, text)
    done = run_explain(file)
    assert (done.code, done.err.startswith("SchemaError: ")) == (2, True)
    assert f"{file}:3" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("line", ["ps.read.rows([])", '1 < ps.col("a") < 2', "ps.read.csv(3)"])
def test_a_mistake_before_any_step_is_shown_with_the_user_s_line_too(tmp_path: Path, line: str) -> None:
    file = write(tmp_path, f"import penstock as ps\n\ndef made():\n    return {line}\n\nmade()\n")
    done = run_explain(file)
    assert (done.code, f"where:  {file}:4\n" in done.err) == (2, True)


def test_a_graph_without_a_sink_is_a_mistake_before_the_run(tmp_path: Path) -> None:
    text = 'import penstock as ps\ngraph = ps.PipeGraph("views")\ngraph.source(ps.read.rows([{"a": 1}]))\n'
    done = penstock("run", write(tmp_path, text), "--engine", "reference")
    assert (done.code, 'graph "views" has no sink' in done.err) == (2, True)


def test_modules_beside_the_file_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, "STEP = 'beside'\n", "beside_views.py")
    text = one().replace('"numbers"', "STEP")
    done = run_explain(write(tmp_path, f"from beside_views import STEP\n{text}"))
    assert (done.code, "beside" in done.out) == (0, True)


def test_annotations_of_classes_in_the_file_are_found_later(tmp_path: Path) -> None:
    text = """
from __future__ import annotations
from dataclasses import dataclass
import penstock as ps

@dataclass
class Total:
    total: int

def double(row: ps.Row) -> Total:
    return Total(row.a * 2)

graph = ps.PipeGraph("views")
graph.source(ps.read.rows([{"a": 1}])).map(double).sink(ps.write.memory())
"""
    done = run_explain(write(tmp_path, text))
    assert (done.code, "total" in done.out) == (0, True)
