"""A function that was compiled apart from its file has the lines of the file; what is not certain is not guessed."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from inplace_magic.source import apart
from tests.cells import new_shell, run_in

TEXT = """import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    # comments and blank lines are lines of the file
    def forward(self, x):
        {body}
        return y
"""
FINE = TEXT.format(body="y = self.linear(x).exp()")
FAILS = TEXT.format(
    body="""y = (self.linear(x)
             .exp())
        y += 1"""
)


def _codes(text: str) -> dict[str, types.CodeType]:
    def inner(code: types.CodeType) -> list[types.CodeType]:
        here = [one for one in code.co_consts if isinstance(one, types.CodeType)]
        return here + [one for each in here for one in inner(each)]

    return {code.co_qualname: code for code in inner(compile(text, "m.py", "exec"))}


def test_what_does_something_else_is_another_function() -> None:
    (one,) = _codes("def f(x): return x + 1").values()
    for other in ("return x + 1.0", "return x + True", "return x - 1", "return y + 1", "return x + 1 or (lambda: 2)"):
        assert not apart.find(one, _codes(f"\ndef f(x): {other}").values())
        assert apart.in_file(one) is one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("def f(x, y): return x", "def f(x, *, y): return x", id="an argument is given by its name"),
        pytest.param("def f(x, y): return x", "def f(x, /, y): return x", id="an argument is given by its place"),
        pytest.param(
            "def f(*x): return x", "def f(**x): return x", id="the rest of the arguments, by place or by name"
        ),
        pytest.param(
            "def f(x):\n    try:\n        x()\n        x()\n    except E: x()",
            "def f(x):\n    try:\n        x()\n    except E: x()\n    else:\n        x()",
            id="a try ends earlier",
        ),
        pytest.param(
            "def g(a, b):\n    def f(): return a",
            "def g(a, b):\n    def f(): return b",
            id="another variable of the function around it",
        ),
    ],
)
def test_what_differs_beside_the_instructions_is_another_function(one: str, other: str) -> None:
    (ours,), (theirs,) = ([c for c in _codes(text).values() if c.co_name == "f"] for text in (one, other))
    assert not apart.find(ours, [theirs])


def test_of_two_alike_only_the_name_tells() -> None:
    (one,) = _codes("def f(self): return 1").values()
    both = _codes("class A:\n    def f(self): return 1\nclass B:\n    def f(self): return 1")
    assert not apart.find(one, both.values())
    assert apart.find(one, both.values(), "B.f") and apart.in_file(one) is both["B.f"]


def test_functions_within_it_come_along() -> None:
    one, other = (_codes(text + "def f():\n    def g(): return 1\n    return g") for text in ("", "\n\n"))
    assert apart.find(one["f"], other.values())
    assert apart.in_file(one["f.<locals>.g"]).co_firstlineno == 4


def test_a_method_that_autoreload_has_exchanged_is_named_fixed_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reloaded_model.py"
    path.write_text(FINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        shell = new_shell()
        made = "import torch, reloaded_model\nnet = reloaded_model.Model()\nnet(torch.ones(2, 3)).sum().backward()"
        assert run_in(shell, ["%load_ext autoreload\n%autoreload 2", made]).error is None
        path.write_text(FAILS)
        os.utime(path, (path.stat().st_mtime + 10,) * 2)
        done = run_in(shell, ["net(torch.ones(2, 3)).sum().backward()"])
        assert done.diagnosis is not None and done.diagnosis.notes == ()
        assert done.diagnosis.changed is not None and done.diagnosis.saved is not None
        assert (done.diagnosis.changed.line, done.diagnosis.changed.function) == (11, "Model.forward")
        assert (done.diagnosis.saved.line, done.diagnosis.saved.text) == (10, ".exp())")
        assert run_in(shell, ["%autograd_fix --run"]).error is None
        assert "y = y + 1" in path.read_text()
        assert run_in(shell, ["%autograd_fix --undo"]).error is None
        assert path.read_text() == FAILS
    finally:
        sys.modules.pop("reloaded_model", None)
