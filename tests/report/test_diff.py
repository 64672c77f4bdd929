from __future__ import annotations

import pytest

from inplace_magic.report.diff import Line, sections
from tests.report.samples import fix


def _drawn(diff: str, **more: object) -> list[str]:
    found: list[str] = []
    for section in sections(fix("t", diff, **more)):
        found += [section.label, *(line.sign + line.text for line in section.lines)]
    return found


@pytest.mark.parametrize(
    ("diff", "drawn"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("-a\n+b", ["In[3]", "-a", "+b"], id="bare lines get the label of the only cell"),
        pytest.param("In[5]\n-a\n+b", ["In[5]", "-a", "+b"], id="a label of its own"),
        pytest.param("--- In[3]\n+++ In[3] fixed\n@@ -4 +4 @@\n-a\n+b", ["In[3]:4", "-a", "+b"], id="unified"),
        pytest.param(
            "--- In[1]\n+++ In[1]\n@@ -1,4 +1,4 @@\n x\n y\n-a\n+b\n z\n w\n",
            ["In[1]:3", " y", "-a", "+b", " z"],
            id="one line of context, and the line where the change is",
        ),
        pytest.param(
            "--- In[1]\n+++ In[1]\n@@ -1 +1 @@\n-a\n+b\n@@ -9,0 +10 @@\n+c\n--- model.py\n+++ model.py\n@@ -2 +1,0 @@\n-d",
            ["In[1]:1", "-a", "+b", "In[1]:9", "+c", "model.py:2", "-d"],
            id="several hunks and targets",
        ),
        pytest.param("-a\n+b\n\\ No newline at end of file", ["In[3]", "-a", "+b"], id="no newline at the end"),
        pytest.param("-a\n\n+b", ["In[3]", "-a", " ", "+b"], id="a blank line without its space"),
        pytest.param(" \n-a\n ", ["In[3]", "-a"], id="blank context is left out"),
        pytest.param("--- a\n+b", ["In[3]", "--- a", "+b"], id="a removed line of minus signs"),
        pytest.param(
            "-\ta\x1b\n+b\x0cc", ["In[3]", r"-    a\x1b", r"+b\x0cc"], id="controls are shown, and split no line"
        ),
    ],
)
def test_a_diff_is_taken_apart(diff: str, drawn: list[str]) -> None:
    assert _drawn(diff) == drawn


def _moved_in(count: int, last: str = "done()") -> str:
    body = [*(f"step({n})" for n in range(count - 1)), last]
    return "\n".join([*(f"-{line}" for line in body), "+with block():", *(f"+    {line}" for line in body)])


def test_a_short_block_is_shown_as_it_was_and_as_it_is() -> None:
    assert len(_drawn(_moved_in(5))) == 1 + 5 + 6


def test_of_a_long_block_that_only_goes_in_both_ends_are_shown() -> None:
    assert _drawn(_moved_in(9)) == [
        "In[3]", "+with block():", "     step(0)", "     step(1)", "     …", "     step(7)", "     done()",
    ]  # fmt: skip


def test_a_blank_line_that_stays_parts_no_long_block() -> None:
    body = "\n-".join(f"step({n})" for n in range(6))
    moved = "\n+    ".join(f"step({n})" for n in range(6))
    drawn = _drawn(f"-{body}\n+with block():\n+    {moved}\n \n-done()\n+    done()\n end()")
    assert drawn[1:] == ["+with block():", "     step(0)", "     step(1)", "     …", "     done()", " end()"]


def test_a_long_block_in_which_a_line_is_another_one_is_shown_whole() -> None:
    changed = _moved_in(9).replace("+    step(3)", "+    step(33)")
    assert len(_drawn(changed)) == 1 + 9 + 10


def test_two_cells_and_no_label() -> None:
    assert _drawn("-a\n+b", cells={1: "", 2: ""}) == ["", "-a", "+b"]


def test_a_line_knows_where_it_departs_from_the_one_it_replaces() -> None:
    (section,) = sections(fix("t", "-x = f(a)\n+x = f(b)\n+y = 1"))
    assert section.lines == (Line("-", "x = f(a)", 6), Line("+", "x = f(b)", 6), Line("+", "y = 1", 0))
