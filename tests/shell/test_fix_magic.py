"""%autograd_fix: what it refuses, what it changes, and that a trained model is kept."""

from __future__ import annotations

import argparse
import gettext

import IPython
import pytest

from tests.cells import run_cells, run_in

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.sigmoid(self.lin(x))
        h += 1
        return self.act(torch.tanh(h))
"""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("%autograd_fix", "There is no report yet", id="before any report"),
        pytest.param("%autograd_fix --diagnosis nope", "another session", id="a report of another session"),
        pytest.param(
            "%autograd_fix --nonsense",
            "unrecognized arguments: --nonsense (%autograd_fix? shows what it takes)",
            id="an unknown option",
        ),
        pytest.param('%autograd_fix "1', 'unrecognized arguments: "1', id="a quote that is not closed"),
    ],
)
def test_wrong_use_is_told_in_one_line_with_the_remedy(line: str, says: str) -> None:
    done = run_cells(line)
    assert says in done.output and "Traceback" not in done.output


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("%autograd_fix --nonsense", "无法识别的参数：--nonsense", id="an unknown option"),
        pytest.param("%autograd_fix two", "参数 number：无效的 int 值：'two'", id="a value that is none"),
        pytest.param("%autograd_fix --diagnosis", "参数 --diagnosis：需要一个值", id="no value"),
        pytest.param("%autograd_fix --run=3", "参数 --run：不接受值 '3'", id="a value too much"),
        pytest.param("%%autograd_check --memory much\n1", "参数 --memory：无效的 float 值", id="of the other magic"),
    ],
)
def test_wrong_use_is_told_in_the_language_of_the_reports(line: str, says: str) -> None:
    done = run_cells("%config InplaceMagic.language = 'zh'", line)
    assert says in done.output
    assert argparse._ is gettext.gettext  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", ["0", "-1", "99"])
def test_a_fix_that_is_not_there(number: str) -> None:
    done = run_cells(SETUP, BODY)
    refused = run_in(done.shell, [f"%autograd_fix {number}"])
    assert f"there is no fix {number}" in refused.output


def test_with_nothing_accepted_there_is_nothing_to_undo() -> None:
    assert run_cells("%autograd_fix --undo").output == "Nothing to undo.\n"


def test_showing_accepts_nothing_and_without_a_number_shows_every_fix() -> None:
    done = run_cells(SETUP, BODY)
    assert done.diagnosis is not None
    last = len(done.diagnosis.fixes)
    shown = run_in(done.shell, ["%autograd_fix --show"]).output
    one = run_in(done.shell, [f"%autograd_fix {last} --show"]).output
    assert "+ x = x + 1" in shown and "needs the kept value" in shown
    assert shown.count("verified, ") == last and one.count("verified, ") == 1
    assert f"%autograd_fix{f' {last}' if last > 1 else ''} accepts it" in one
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "Nothing to undo.\n"


def test_every_act_answers_in_one_line() -> None:
    done = run_cells(SETUP, BODY)
    said = [
        run_in(done.shell, [line]).output
        for line in ("%autograd_fix --run", "%autograd_fix --undo", "%autograd_fix --undo", "%autograd_fix")
    ]
    assert said == [
        "Fixed In[2] and ran it: no error.\n",
        "Undone: In[2] is as it was.\n",
        "Nothing to undo.\n",
        "Fixed In[2]; %autograd_fix --run runs it.\n",
    ]


def test_a_fix_that_has_run_is_not_run_once_more_by_the_same_command() -> None:
    done = run_cells(SETUP, BODY)
    run_in(done.shell, ["%autograd_fix --run", "before = w.grad.clone()"])
    again = run_in(done.shell, ["%autograd_fix --run"]).output
    assert again == "Fix 1 is accepted already, and In[2] ran with it; run the cell itself to run it again.\n"
    assert run_in(done.shell, ["assert torch.equal(w.grad, before)"]).error is None
    assert "ran it: no error" in [run_in(done.shell, [f"%autograd_fix --{act}"]).output for act in ("undo", "run")][1]


@pytest.mark.all_fixes
def test_another_fix_of_the_same_report_takes_the_place_of_the_first() -> None:
    done = run_cells(MODEL, "net = Net()\ncode = Net.forward.__code__")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None and len(failed.diagnosis.fixes) > 1
    said = [run_in(done.shell, [line]).output for line in ("%autograd_fix", "%autograd_fix 2", "%autograd_fix 2")]
    assert said[0] == "Fixed In[1]; %autograd_fix --run runs it.\n"
    assert said[1] == "Fixed In[1]; %autograd_fix 2 --run runs it. Fix 1 was taken back.\n"
    assert said[2] == "Fix 2 is accepted already; %autograd_fix 2 --run runs it.\n"
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "Undone: In[1] is as it was.\n"
    assert run_in(done.shell, ["assert Net.forward.__code__ is code and net.act.inplace"]).error is None
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "Nothing to undo.\n"


@pytest.mark.all_fixes
def test_fixes_of_two_reports_are_both_in_force_and_undone_one_by_one() -> None:
    done = run_cells(SETUP, BODY, "%autograd_fix", BODY, "%autograd_fix 2")
    assert done.output.endswith("Fixed In[4]; %autograd_fix 2 --run runs it.\n")
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "Undone: In[4] is as it was.\n"
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "Undone: In[2] is as it was.\n"


def test_undo_takes_back_what_was_accepted_last_whatever_its_number_and_however_many_reports_since() -> None:
    done = run_cells(MODEL, "net = Net()\ncode, forward = Net.forward.__code__, Net.forward")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None
    run_in(done.shell, [f"%autograd_fix {len(failed.diagnosis.fixes)}"])
    assert run_in(done.shell, ["assert Net.forward.__code__ is not code or not net.act.inplace"]).error is None
    run_in(done.shell, [SETUP, BODY])  # another report
    back = run_in(done.shell, ["%autograd_fix --undo"])
    assert back.output == "Undone: In[1] is as it was.\n"
    assert run_in(done.shell, ["assert Net.forward.__code__ is code and net.act.inplace"]).error is None


def test_after_a_run_the_next_prompt_is_empty() -> None:
    done = run_cells(SETUP, BODY)
    run_in(done.shell, ["%autograd_fix --run"])
    assert getattr(done.shell, "rl_next_input", None) is None


def test_the_last_diagnosis_reads_as_its_report() -> None:
    done = run_cells(SETUP, BODY)
    shown = run_in(done.shell, ["import inplace_magic", "print(repr(inplace_magic.last_diagnosis()))"]).output
    assert "In-place change broke the backward pass" in shown and "+ x = x + 1" in shown
    assert done.diagnosis is not None and "<ins" in done.diagnosis._repr_html_()


def test_the_language_can_be_set() -> None:
    done = run_cells("%config InplaceMagic.language = 'zh'", SETUP, BODY)
    assert "in-place 修改破坏了 backward" in done.output and "已验证" in done.output
    assert run_in(done.shell, ["%autograd_fix --undo"]).output == "没有可撤销的内容。\n"


def test_accepting_hands_over_the_rewritten_cell_and_runs_nothing() -> None:
    done = run_cells(SETUP, BODY)
    accepted = run_in(done.shell, ["%autograd_fix"])
    assert accepted.error is None
    assert done.shell.rl_next_input == "x = w.exp()\nx = x + 1\nx.sum().backward()"
    assert run_in(done.shell, ["assert w.grad is None"]).error is None


def test_accepting_and_running() -> None:
    done = run_cells(SETUP, BODY)
    assert (
        run_in(done.shell, ["%autograd_fix --run", "assert torch.allclose(w.grad, torch.ones(3).exp())"]).error is None
    )


def test_the_error_of_the_accepted_cell_is_let_through() -> None:
    done = run_cells(SETUP, BODY)
    run_in(done.shell, ["del w"])
    failed = run_in(done.shell, ["%autograd_fix --run"])
    assert isinstance(failed.error, NameError)


def test_a_model_in_another_cell_is_fixed_where_it_lives_and_keeps_its_weights() -> None:
    done = run_cells(MODEL, "net = Net()\nweight = net.lin.weight\nbefore = weight.detach().clone()")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None
    fix = failed.diagnosis.fixes[0]
    assert fix.verified and 1 in fix.cells
    accepted = run_in(done.shell, ["%autograd_fix --run"])
    assert accepted.error is None
    kept = "assert net.lin.weight is weight and torch.equal(before, weight) and weight.grad is not None"
    assert run_in(done.shell, [kept]).error is None


@pytest.mark.skipif(IPython.version_info < (8,), reason="IPython 7 names the file of a cell")
def test_a_later_error_inside_a_function_that_was_fixed_names_its_cell_and_line() -> None:
    cell = "def f(x):\n    h = x.exp()\n    h += 1\n    return h.sum()"
    run = run_cells(SETUP, cell, "f(w).backward()")
    assert run.cell("%autograd_fix").error is None
    later = run.cell("f(None)").output
    assert "Cell In[2], line 2" in later and "h = x.exp()" in later and "<replayed" not in later


def test_live_changes_can_be_taken_back() -> None:
    done = run_cells(MODEL, "net = Net()\ncode = Net.forward.__code__")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None
    key = failed.diagnosis.id
    changed = run_in(
        done.shell,
        [f"%autograd_fix 1 --live --diagnosis {key}", "assert Net.forward.__code__ is not code or not net.act.inplace"],
    )
    assert changed.error is None
    back = run_in(
        done.shell,
        [f"%autograd_fix 1 --undo --diagnosis {key}", "assert Net.forward.__code__ is code and net.act.inplace"],
    )
    assert back.error is None


def test_braces_in_a_cell_survive() -> None:
    done = run_cells(SETUP, "name = 'w'\nx = {name: w.exp()}[name]\nx += 1\nprint(f'{name} {{}}')\nx.sum().backward()")
    assert done.diagnosis is not None
    assert "print(f'{name} {{}}')" in done.diagnosis.fixes[0].cells[2]
