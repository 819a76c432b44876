"""The page is self-contained and safe to open."""

from __future__ import annotations

from html.parser import HTMLParser

from bench import Case, Way, Workload, build_page, measure
from tests.support.sort_workload import ScriptedClock, build_sorting


class Tags(HTMLParser):
    """The tags and attribute values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value or "" for _, value in attrs]


def test_the_page_is_self_contained_and_draws_every_case() -> None:
    clock = ScriptedClock()
    page = Tags(build_page(measure(build_sorting(clock), rounds=3, clock=clock)))
    assert page.tags.count("svg") == 2
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [value for value in page.values if "://" in value or value.startswith("//")]


def test_names_from_a_workload_cannot_become_markup() -> None:
    nasty = '<script>alert("&")</script>'
    workload = Workload(nasty, nasty, (Case(nasty, lambda seed: [1]),), (Way(nasty, len),), oracle=len)
    text = build_page(measure(workload, rounds=1))
    assert "<script>" not in text
    assert "&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;" in text
