from __future__ import annotations

from dataclasses import replace

import pytest

from inplace_magic.diagnosis import Conflict, Diagnosis, LiveChange
from inplace_magic.report import html, text, words
from tests.report import samples
from tests.report.samples import conflict, fix, place

_FAMILIES = [
    "modified",
    "leaf",
    "view_of_leaf",
    "multi_output_view",
    "no_grad_view",
    "second_backward",
    "inference",
    "overlap",
    "out_grad",
    "silent",
]
_HERE = {
    "modified": ["saved here", "changed here", "needed here"],
    "silent": ["saved here", "changed here", "needed here"],
    "second_backward": ["made here", "freed here", "needed again here"],
    "inference": ["made in inference mode here", "saved here", "needed here"],
    "multi_output_view": ["saved here", "changed here", "refused here"],
    "no_grad_view": ["saved here", "changed here", "refused here"],
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_what_a_place_is_in_each_family(family: str) -> None:
    found = words.rows(conflict(place(1, 1, "a"), place(1, 2, "b"), place(1, 3, "c"), ""), family)
    assert [row.here for row in found] == _HERE.get(family, ["saved here", "refused here", "needed here"])


def test_a_refused_write_is_not_shown_twice() -> None:
    line = place(6, 3, "w -= 1")
    assert [row.role for row in words.rows(conflict(None, line, line, ""), "leaf")] == ["changed"]


def test_where_inference_met_autograd_is_not_shown_twice() -> None:
    line = place(6, 3, "loss = f(x)")
    assert [row.role for row in words.rows(conflict(line, place(5, 1, "x"), line, ""), "inference")] == [
        "changed",
        "needed",
    ]


def test_one_line_may_have_saved_and_changed() -> None:
    line = place(6, 3, "x = x.relu().mul_(2)")
    assert [row.role for row in words.rows(conflict(line, line, None, ""), "modified")] == ["saved", "changed"]


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        pytest.param("needed here", "", id="the same"),
        pytest.param("needed", "", id="less"),
        pytest.param("needed here, by relu", "by relu", id="more"),
        pytest.param("relu needs it", "relu needs it", id="something else"),
    ],
)
def test_a_note_does_not_repeat_what_stands_before_it(note: str, shown: str) -> None:
    (row,) = words.rows(conflict(None, None, place(1, 1, "a"), "", needed_note=note), "modified")
    assert row.note == shown


def test_an_expression_over_several_lines_is_one_line() -> None:
    (row,) = words.rows(conflict(None, None, place(1, 1, "loss = f(\n    x,\n)"), ""), "modified")
    assert row.code == "loss = f( x, )"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gradients": "same"}, "proved: ran, gradients are those your code means"),
        (
            {"gradients": "truncated"},
            "ran past the failure; cuts the graph: earlier steps get no gradient from here",
        ),
        ({"gradients": "different"}, "ran past the failure; gradients differ from those of the code as written"),
        ({"gradients": "unknown"}, "ran past the failure; gradients were not compared"),
        ({"proof": "ran 3 steps."}, "ran 3 steps; gradients are those your code means"),
        (
            {"proof": "proved: Gradients are those your code means, to 1e-7"},
            "proved: Gradients are those your code means, to 1e-7",
        ),
        (
            {"gradients": "unknown", "proof": "ran; gradients could not be compared"},
            "ran; gradients could not be compared",
        ),
        (
            {"verified": False, "gradients": "unknown"},
            "only a suggestion: it has not been run; gradients were not compared",
        ),
        (
            {"verified": False, "gradients": "unknown", "proof": "not run: it reads a socket"},
            "not run: it reads a socket; gradients were not compared",
        ),
    ],
)
def test_what_is_said_of_a_fix(more: dict[str, object], said: str) -> None:
    assert words.proof(fix("t", "", **more)) == said


@pytest.mark.parametrize("proof", ["", "proved: ran", "Verified by a run", "there is a proof"])
def test_an_unverified_fix_is_never_called_proved(proof: str) -> None:
    unproved = fix("t", "-a\n+b", verified=False, gradients="unknown", proof=proof)
    found = replace(samples.MODIFIED, fixes=(unproved, unproved))
    for drawn in (text.render(found, width=100, color=False), html.render(found)):
        assert "proved" not in drawn.lower()
        assert "verified" not in drawn.lower()
        assert "proof" not in drawn.lower()


def test_the_reason_in_a_note_is_enough() -> None:
    found = replace(samples.UNKNOWN, notes=("No rewrite could be proved: what was tried failed again.",))
    assert words.no_fix(found) == ""
    assert words.no_fix(samples.UNKNOWN) == "This is what is known; no fix was proved."


def test_further_conflicts_are_counted_and_placed() -> None:
    def at(line: int) -> Conflict:
        return conflict(None, place(1, line, "x"), None, "")

    assert words.further((at(1),)) == ""
    assert words.further((at(1), at(2), at(2))) == "and 2 more of the same kind: In[1]:2"
    many = tuple(at(line) for line in range(20))
    said = "and 19 more of the same kind: In[1]:1, In[1]:2, In[1]:3, In[1]:4, In[1]:5, …"
    assert words.further(many) == said
    assert words.further((many[0], conflict(None, None, None, ""))) == "and 1 more of the same kind"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, ""), (0.01, "0.1 s, "), (0.44, "0.4 s, "), (9.97, "10 s, "), (73.2, "73 s, ")]
)
def test_the_time_it_took(seconds: float, said: str) -> None:
    assert words.took(Diagnosis("leaf", "", 1, seconds=seconds)) == f"{said}your session is as it was"


def test_live_changes() -> None:
    assert words.live(LiveChange("set", "net.act", "inplace", False)) == (
        "`net.act.inplace = False` is set on the live module too"
    )
    assert words.live(LiveChange("detach", "attn.M")) == "`attn.M = attn.M.detach()` is done on the live object too"
