from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.picture import make_printable
from penstock.plan.svg import cut, width_of, wrap


def test_what_fits_is_left_alone() -> None:
    assert cut("views", 100, 13) == "views"


def test_what_does_not_fit_ends_in_an_ellipsis() -> None:
    assert cut("a rather long name of a step", 80, 13) == "a rather l…"


def test_text_is_broken_at_spaces_and_the_last_line_is_cut() -> None:
    lines = wrap("sliding 10 s every 1 s, tumbling 1 min, session", 110, 11, lines=2)
    assert lines == ["sliding 10 s every", "1 s, tumbling 1…"]


def test_a_word_too_long_for_a_line_is_cut_where_it_stands() -> None:
    assert wrap("a" * 50, 40, 10, lines=2) == ["aaaa…"]


def test_no_text_has_no_lines() -> None:
    assert wrap("  ", 40, 10, lines=2) == []


def test_bold_text_and_ideographs_are_wider() -> None:
    assert width_of("views", 13, bold=True) > width_of("views", 13)
    assert width_of("窓", 13) > width_of("w", 13)


def test_control_characters_become_visible_and_line_ends_become_spaces() -> None:
    assert make_printable("a\nb\tc\x00d\x1be") == "a b c\ufffdd\ufffde"
    assert make_printable("日本 🚀 ×4") == "日本 🚀 ×4"


@given(st.text(max_size=80), st.floats(20, 300))
def test_cut_text_is_never_wider_than_its_room(text: str, width: float) -> None:
    assert width_of(cut(text, width, 11), 11) <= width


@given(st.text("ab cd ef", max_size=120), st.floats(30, 300), st.integers(1, 3))
def test_wrapped_lines_are_few_and_fit_and_keep_the_words_in_order(text: str, width: float, n: int) -> None:
    lines = wrap(text, width, 11, lines=n)
    assert len(lines) <= n
    assert all(width_of(line, 11) <= width for line in lines)
    assert text.replace(" ", "").startswith("".join(lines).replace(" ", "").rstrip("…"))
