from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from inplace_magic.report import html
from tests.report import samples

_TAGS = frozenset(
    [
        "div",
        "p",
        "strong",
        "small",
        "table",
        "tbody",
        "tr",
        "td",
        "code",
        "bdi",
        "span",
        "pre",
        "del",
        "ins",
        "details",
        "summary",
    ]
)


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    def handle_data(self, data: str) -> None:
        self.shown += data


def _seen(name: str) -> _Seen:
    seen = _Seen()
    seen.feed(html.render(samples.ALL[name]))
    seen.close()
    return seen


@pytest.mark.parametrize("name", samples.ALL)
def test_only_our_own_tags_and_all_of_them_closed(name: str) -> None:
    seen = _seen(name)
    assert seen.tags <= _TAGS
    assert seen.attributes <= {"class", "style"}
    assert seen.open == []


def test_hostile_text_is_shown_as_text() -> None:
    shown = _seen("hostile").shown
    assert "<script>alert(1)</script>" in shown
    assert "<svg onload=alert(3)>" in shown
    assert "</pre><style>*{display:none}</style>" in shown
    assert '" onmouseover="alert(4)' in shown
    assert r"\u202e \u2066# admin\u2069" in shown
    assert r"\x1b]0;owned\x07" in shown


@pytest.mark.parametrize("name", samples.ALL)
def test_nothing_steers_the_page(name: str) -> None:
    drawn = html.render(samples.ALL[name])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", drawn)
    drawn.encode()


def test_every_line_of_a_change_has_its_sign() -> None:
    assert "- x += feature16\n+ x = x + feature16\n" in _seen("modified").shown


def test_without_styles_the_words_say_it_all() -> None:
    shown = _seen("second_backward").shown
    for said in (
        "this part of the graph is created here",
        "frees the graph",
        "Fix 1 · verified, gradients no longer flow into earlier steps",
        "%autograd_fix accepts it\n",
        "%autograd_fix 3 accepts it\n",
    ):
        assert said in shown


def test_every_variable_has_a_fallback() -> None:
    drawn = "".join(html.render(d) for d in samples.ALL.values())
    assert re.findall(r"var\([^,)]*\)", drawn) == []
    assert "aria-" not in drawn


def test_another_command_or_none() -> None:
    assert "--fix 2" in html.render(samples.MODIFIED, accept="--fix")
    assert "Accept" not in html.render(samples.MODIFIED, accept="")
