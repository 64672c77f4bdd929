"""What a rewrite needs is run again, in the state in which it was run the first time; nothing else is."""

from __future__ import annotations

import pytest

from inplace_magic.session.cells_to_run import cells_to_run
from inplace_magic.source.document import CellSource
from inplace_magic.source.sources import Sources
from tests.cells import run_cells


@pytest.mark.parametrize(
    ("cells", "rewritten", "expected"),
    [
        pytest.param(["a = f(1)", "b = g(a)", "b"], "a = f(2)", (1, 2, 3), id="what reads what it makes"),
        pytest.param(
            ["a = f(1)\nenv = Env()", "env.reset()", "b = a"], "a = f(2)\nenv = Env()", (1, 2, 3),
            id="what may have changed something else that is made anew with it",
        ),
        pytest.param(["a = f(1)", "print(c)", "b = a"], "a = f(2)", (1, 3), id="not what reads nothing of it"),
        pytest.param(
            ["import torch\na = f(1)", "t = torch.ones(2)", "b = a"], "import torch\na = f(2)", (1, 3),
            id="not what reads an import of it, which is the same again",
        ),
        pytest.param(
            ["def f():\n    return 1\na = f()", "c = a", "f()"], "def f():\n    return 2\na = f()", (3,),
            id="nothing where only the insides of a function change",
        ),
    ],
)  # fmt: skip
def test_the_cells_that_run_for_a_rewrite(cells: list[str], rewritten: str, expected: tuple[int, ...]) -> None:
    sources = Sources({n: CellSource(n, text) for n, text in enumerate(cells, 1)}, {}, len(cells))
    assert cells_to_run(sources, {1: rewritten}, (), len(cells)) == expected


@pytest.mark.parametrize(
    ("cells", "carrying", "expected"),
    [
        pytest.param(["w = 1", "e = f(w)", "e *= 2", "b(e)"], {"e"}, (2, 3, 4), id="what made a value that is changed"),
        pytest.param(["w = 1", "e = f(w)", "e.mul_(2)", "b(e)"], {"e"}, (2, 3, 4), id="by a method"),
        pytest.param(["w = 1", "e = f(w)", "e[0] = 2", "b(e)"], {"e"}, (2, 3, 4), id="in a part"),
        pytest.param(["w = 1", "e = f(w)", "e = e + 1", "e *= 2", "b(e)"], {"e"}, (2, 3, 4, 5), id="by one cell after the other"),
        pytest.param(["w = 1", "e = f(w)\nu = g(e)", "e *= 2", "b(e)"], {"e", "u"}, (2, 3, 4), id="with what else it makes"),
        pytest.param(["w = 1", "k = 0", "k += 1", "b(k)"], {"e"}, (3, 4), id="not a number, which counts on"),
        pytest.param(["net = N()\nh = z()", "1", "h = net(h)", "b(h)"], {"h"}, (3, 4), id="not a cell that makes a model"),
        pytest.param(["w = 1", "e = f(w)\ne.backward()", "e *= 2", "b(e)"], {"e"}, (3, 4), id="not a cell that trains"),
        pytest.param(["w = 1", "e = f(w)", "u = g(e)", "b(u)"], {"e", "u"}, (3, 4), id="not what is only read"),
    ],
)  # fmt: skip
def test_what_a_cell_changes_is_made_anew_ahead_of_it(
    cells: list[str], carrying: set[str], expected: tuple[int, ...]
) -> None:
    sources = Sources({n: CellSource(n, text) for n, text in enumerate(cells, 1)}, {}, len(cells))
    assert cells_to_run(sources, {len(cells) - 1: f"{cells[-2]}; 0"}, (), len(cells), carrying) == expected


def test_a_value_is_changed_once_when_a_fix_is_accepted() -> None:
    run = run_cells(
        "import torch\nw = torch.ones(3, requires_grad=True)",
        "e = w.exp()",
        "e *= 2",
        "loss = e.sum()\nloss.backward()",
    )
    assert run.diagnosis is not None and {fix.run for fix in run.diagnosis.fixes} == {(2, 3, 4)}
    assert run.cell("%autograd_fix --run").error is None
    assert (
        run.cell("assert torch.allclose(loss, 2 * w.exp().sum()) and torch.allclose(w.grad, 2 * w.exp())").error is None
    )


TRAINED = """
    import torch, torch.nn as nn
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    count = 0
    def features(x):
        h = net(x).sigmoid()
        return h
    """


def test_what_a_cell_made_of_a_rewritten_function_is_made_anew_and_not_cut_off() -> None:
    made, changed = "z = features(torch.ones(2, 3))", "z.mul_(2)\nu = net(torch.ones(2, 3)).exp()"
    run = run_cells(TRAINED, made, changed, "loss = z.sum() + u.sum()\nloss.backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert {fix.run for fix in run.diagnosis.fixes} == {(2, 3, 4)}
    assert not any(fix.live for fix in run.diagnosis.fixes)


def test_a_cell_that_reads_such_a_value_to_train_is_not_run_again() -> None:
    cells = [
        "e = w.exp()", "count += 1\n(e.detach() * net(x)).sum().backward()\nopt.step()", "e *= 2", "e.sum().backward()",
    ]  # fmt: skip
    sources = Sources({n: CellSource(n, text) for n, text in enumerate(cells, 1)}, {}, 4)
    assert cells_to_run(sources, {3: "e = e * 2"}, (), 4, {"e"}) == (1, 3, 4)


def test_that_something_else_is_changed_once_more_is_said() -> None:
    changed = "b *= 2\nz = features(torch.ones(2, 3))\nz *= b"
    run = run_cells(TRAINED, "b = torch.ones(3)", changed, "z.sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes[0].run == (3, 4)
    assert "`b` once more" in run.output
