from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len

from inplace_magic.diagnosis import Diagnosis
from inplace_magic.report import diff, html, text
from inplace_magic.report.contents import report_of
from tests.report import samples

_CODES = re.compile(r"\x1b\[[0-9;]*m")


def _lines(diagnosis: Diagnosis, width: int) -> list[str]:
    return text.render(diagnosis, width=width, color=False).split("\n")


@pytest.mark.parametrize("width", [24, 40, 61, 80, 100, 120, 300])
@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_wider_than_the_page(name: str, width: int) -> None:
    assert [line for line in _lines(samples.ALL[name], width) if cell_len(line) > width] == []


@pytest.mark.parametrize("width", [0, 1, 10])
def test_an_absurd_width_is_drawn_all_the_same(width: int) -> None:
    assert "^^^^" in text.render(samples.MODIFIED, width=width, color=False)


@pytest.mark.parametrize("name", samples.ALL)
def test_without_colour_there_is_no_escape_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    drawn = text.render(samples.ALL[name], width=80, color=False)
    assert "\x1b" not in drawn


@pytest.mark.parametrize("name", samples.ALL)
def test_colour_adds_nothing_but_colour(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    plain = text.render(samples.ALL[name], width=80, color=False)
    colored = text.render(samples.ALL[name], width=80, color=True)
    assert colored != plain
    assert [line.rstrip() for line in _CODES.sub("", colored).split("\n")] == plain.split("\n")


def drawn_part(code: str, carets: str) -> str:
    """What of a row stands above the carets, in cells."""
    first, last = carets.index("^"), carets.rindex("^")
    return "".join(c for at, c in enumerate(code) if first <= cell_len(code[:at]) <= last)


def test_carets_stand_under_wide_characters() -> None:
    drawn = _lines(samples.WIDE, 100)
    for code, carets in itertools.pairwise(drawn):
        if "^" in carets:
            marked = carets.index("^"), carets.rindex("^") + 1
            assert cell_len(code[: code.index("│")]) == carets.index("│")
            assert drawn_part(code, carets) in (
                "torch.sigmoid(输入 @ 权重)",
                "隐藏 *= 掩码",
                "损失.backward()",
            ) and marked[1] - marked[0] == cell_len(drawn_part(code, carets))


def test_what_steers_a_terminal_is_shown_escaped() -> None:
    drawn = text.render(samples.HOSTILE, width=120, color=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", drawn)
    assert r"\x1b]0;owned\x07" in drawn
    assert r"\u202e" in drawn
    assert r"\ud800" in drawn
    drawn.encode()


def test_markup_and_emoji_codes_stay_text() -> None:
    assert "[bold]markup[/bold] :smile:" in text.render(samples.HOSTILE, width=120, color=True)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", samples.ALL)
def test_a_diffs_code_is_not_cut(name: str, width: int) -> None:
    """What is drawn of the first fix holds every line of its diff, whatever rows it takes."""
    found = samples.ALL[name]
    if not found.fixes:
        return
    drawn = "".join(line.strip() for line in _lines(replace(found, fixes=found.fixes[:1]), width)).replace(" ", "")
    for section in diff.sections(found.fixes[0]):
        for line in section.lines:
            assert line.text.replace(" ", "") in drawn


def test_a_line_that_would_take_the_whole_screen_is_shown_around_its_change() -> None:
    numbers = ", ".join(map(str, range(900)))
    old, new = (f"t = tensor([{numbers}]); {write}; t.sum().backward()" for write in ("t += 1", "t = t + 1"))
    found = replace(samples.LEAF, fixes=(samples.fix("", samples.diff("In[3]", old, new)),))
    for width in (40, 80):
        drawn = _lines(found, width)
        joined = "".join(line.strip() for line in drawn).replace(" ", "")
        assert len(drawn) < 40 and "t+=1;t.sum().backward()" in joined and "t=t+1;t.sum().backward()" in joined


def test_a_long_line_is_cut_around_what_is_marked() -> None:
    line = "x = " + " + ".join(f"layer_{i}(x)" for i in range(40)) + "; x.relu_()"
    at = line.index("x.relu_()")
    place = samples.place(1, 3, line, columns=(at, at + len("x.relu_()")))
    found = replace(samples.LEAF, family="modified", conflicts=(samples.conflict(None, place, None, ""),), fixes=())
    for width in (40, 60, 80):
        drawn = [row for row in _lines(found, width) if "x.relu_()" in row]
        assert len(drawn) == 1, "the culprit is not cut away"
        below = _lines(found, width)[_lines(found, width).index(drawn[0]) + 1]
        assert below.index("^") == drawn[0].index("x.relu_()")


def test_saved_and_changed_on_one_line_are_one_line_with_two_marks() -> None:
    line = "x = x.relu().mul_(2)"
    saved, changed = (samples.place(1, 3, line, columns=c) for c in ((4, 12), (4, 20)))
    found = replace(samples.LEAF, family="modified", conflicts=(samples.conflict(saved, changed, None, ""),), fixes=())
    drawn = _lines(found, 80)
    assert sum(line in row for row in drawn) == 1
    assert [row.count("^") for row in drawn if "^" in row] == [8, 16]


def test_the_other_command_is_named() -> None:
    drawn = text.render(samples.SECOND_BACKWARD, width=100, color=False, accept="--fix")
    assert "--fix accepts fix 1" in drawn
    assert "%autograd_fix" not in drawn


def test_without_a_command_none_is_named() -> None:
    assert "accepts" not in text.render(samples.MODIFIED, width=100, color=False, accept="")


def test_without_a_fix_nothing_is_to_be_accepted() -> None:
    drawn = text.render(samples.UNKNOWN, width=100, color=False)
    assert "No verified fix was found." in drawn
    assert "accepts" not in drawn


def test_a_diagnosis_without_anything_is_drawn() -> None:
    drawn = text.render(Diagnosis("modified", "Broken", None), width=60, color=False)
    assert drawn.split("\n")[0].startswith("Broken")


def test_the_first_fix_is_shown_in_full_and_the_others_by_place_and_edit() -> None:
    drawn = text.render(samples.MODIFIED, width=100, color=False)
    assert "  + x = x + feature16" in drawn
    assert "1 more: In[3]:3 x = F.relu(x).clone()" in drawn
    assert "- x = F.relu(x)" not in drawn


def test_with_everything_shown_each_fix_has_its_diff() -> None:
    assert "+ x = F.relu(x).clone()" in text.render(samples.MODIFIED, width=100, color=False, whole=True)


def test_a_long_headline_pushes_the_time_to_the_next_line() -> None:
    drawn = _lines(replace(samples.LEAF, headline="word " * 12), 60)
    assert drawn[1] == "0.1 s · your session is unchanged"


@pytest.mark.parametrize("name", samples.ALL)
def test_the_lines_and_then_the_fixes_are_the_report(name: str) -> None:
    found = samples.ALL[name]
    lines = text.render(found, width=80, color=False, part="lines")
    told = report_of(found).sentences
    fixes = text.render(found, width=80, color=False, part="fixes", told=told)
    assert f"{lines}\n\n{fixes}" == text.render(found, width=80, color=False)


@pytest.mark.parametrize("proof", ["", "proved: ran", "Verified by a run"])
def test_a_fix_that_was_not_run_is_never_called_verified(proof: str) -> None:
    untried = samples.fix("t", "-a\n+b", verified=False, gradients="unknown", proof=proof)
    found = replace(samples.MODIFIED, fixes=(untried, untried))
    for drawn in (text.render(found, width=100, color=False, whole=True), html.render(found)):
        assert "verified" not in drawn.lower() and "proved" not in drawn.lower()


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_drawing_for_the_first_time_leaves_random_alone() -> None:
    code = """
import random, sys
from inplace_magic.report import load_rich, text
from inplace_magic.diagnosis import Diagnosis
random.seed(3)
state = random.getstate()
assert "rich" not in sys.modules
text.render(Diagnosis("modified", "Broken", 1), width=80, color=True)
assert "rich.console" in sys.modules
print(random.getstate() == state)
"""
    assert _python(code) == "True"


def test_loading_rich_leaves_random_alone() -> None:
    code = """
import random
from inplace_magic.report.load_rich import load_rich
random.seed(3)
state = random.getstate()
rich = load_rich()
print(random.getstate() == state, rich.console.Console.__name__, rich.cells.cell_len("a"), rich.text.Text.__name__)
"""
    assert _python(code) == "True Console 1 Text"


@pytest.mark.parametrize("module", ["text", "html", "bundle"])
def test_importing_the_report_imports_neither_rich_nor_torch(module: str) -> None:
    code = f"import sys, inplace_magic.report.{module}; print({{'rich', 'torch', 'pygments'}} & set(sys.modules))"
    assert _python(code) == "set()"


@pytest.mark.parametrize(("gradients", "explained"), [("same", False), ("truncated", True), ("different", True)])
def test_a_fix_that_changes_what_is_computed_is_explained(gradients: str, explained: bool) -> None:
    fix = replace(samples.MODIFIED.fixes[0], gradients=gradients, why="The sum becomes a new tensor.")  # type: ignore[arg-type]
    drawn = text.render(replace(samples.MODIFIED, fixes=(fix,)), width=100, color=False)
    assert ("The sum becomes a new tensor." in drawn) is explained
