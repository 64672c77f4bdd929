from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    nets = {"q": nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), "pi": nn.Linear(2, 1)}
    opts = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in nets.items()}
    def q_loss(x):
        return nets["q"](x).pow(2).mean()
    def pi_loss(x):
        return -nets["q"](torch.cat([x[:, :2], nets["pi"](x[:, :2])], 1)).mean()
    def update(name, loss):
        opts[name].zero_grad()
        loss.backward()
        opts[name].step()
    """
OF_DICT = """
    def learn(x):
        losses = {"q": q_loss(x), "pi": pi_loss(x)}
        for name, loss in losses.items():
            update(name, loss)
        return {name: loss.item() for name, loss in losses.items()}
    for x in torch.randn(2, 5, 3):
        print(learn(x))
    """
OF_LIST = """
    def learn(x):
        losses = [q_loss(x), pi_loss(x)]
        for name, loss in zip(opts, losses):
            update(name, loss)
        return losses[0].item()
    for x in torch.randn(2, 5, 3):
        print(learn(x))
    """
OF_ROWS = """
    def learn(x):
        for name, loss in [("q", q_loss(x)), ("pi", pi_loss(x))]:
            update(name, loss)
    for x in torch.randn(2, 5, 3):
        learn(x)
    """


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            "a, b = q_loss(x), pi_loss(x)\n        losses = {'q': a, 'pi': b}", id="which have names of their own"
        ),
        pytest.param(
            "losses = {'q': q_loss(x), 'pi': pi_loss(x)}\n        print(len(losses))", id="which are read before"
        ),
    ],
)
def test_nothing_is_made_later(line: str) -> None:
    cell = OF_DICT.replace('losses = {"q": q_loss(x), "pi": pi_loss(x)}', line)
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    assert not [fix.title for fix in run.diagnosis.fixes if "make()" in fix.title]


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            OF_DICT,
            (
                ('losses = {"q": q_loss(x), "pi": pi_loss(x)}', "losses = {}"),
                (
                    "for name, loss in losses.items():\n        update",
                    'for name, make in {"q": lambda: q_loss(x), "pi": lambda: pi_loss(x)}.items():\n'
                    "        losses[name] = loss = make()\n        update",
                ),
            ),
            id="of a dict",
        ),
        pytest.param(
            OF_LIST,
            (
                ("losses = [q_loss(x), pi_loss(x)]", "losses = []"),
                (
                    "for name, loss in zip(opts, losses):\n",
                    "for name, make in zip(opts, [lambda: q_loss(x), lambda: pi_loss(x)]):\n"
                    "        loss = make()\n        losses.append(loss)\n",
                ),
            ),
            id="of a list",
        ),
        pytest.param(
            OF_LIST.replace("return losses[0].item()", "return x"),
            (
                ("    losses = [q_loss(x), pi_loss(x)]\n", ""),
                (
                    "for name, loss in zip(opts, losses):\n",
                    "for name, make in zip(opts, [lambda: q_loss(x), lambda: pi_loss(x)]):\n        loss = make()\n",
                ),
            ),
            id="of a list that nobody reads on",
        ),
        pytest.param(
            OF_ROWS,
            (
                ("for name, loss in", "for name, make in"),
                ("q_loss(x))", "lambda: q_loss(x))"),
                (", pi_loss(x))", ", lambda: pi_loss(x))"),
                ("        update(name, loss)", "        loss = make()\n        update(name, loss)"),
            ),
            id="of rows in the head of the loop",
        ),
        pytest.param(
            OF_ROWS.replace("for name, loss in [", "rows = [")
            .replace("]:", "]\n        for name, loss in rows:")
            .replace("    for x in", "        return len(rows)\n    for x in"),
            (
                ('rows = [("q", q_loss(x)), ("pi", pi_loss(x))]', "rows = []"),
                (
                    "for name, loss in rows:\n",
                    'for name, make in [("q", lambda: q_loss(x)), ("pi", lambda: pi_loss(x))]:\n'
                    "        loss = make()\n        rows.append((name, loss))\n",
                ),
            ),
            id="of a list of rows",
        ),
    ],
)
def test_each_loss_is_made_in_its_turn(cell: str, changes: tuple[tuple[str, str], ...]) -> None:
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    found = [fix for fix in run.diagnosis.fixes if "make()" in fix.title]
    assert [fix.cells[2].rstrip() for fix in found] == [rewritten(cell, *changes)]
    assert found[0].gradients == "different", "each sees what has been trained by then, and that is said"


def test_a_loss_that_is_put_into_a_dict_ahead_of_the_loop_is_put_there_behind_it() -> None:
    put = 'losses = {"q": q_loss(x)}\n        losses["pi"] = pi_loss(x)'
    cell = OF_DICT.replace('losses = {"q": q_loss(x), "pi": pi_loss(x)}', put)
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    line, update = '    losses["pi"] = pi_loss(x)\n', "        update(name, loss)\n"
    behind = f'{update}{line}    update("pi", losses["pi"])\n'
    assert first.cells == {2: rewritten(cell, (line, ""), (update, behind))}
    assert first.gradients == "different" and not first.untrained


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("if name == 'pi': break\n            update(name, loss)", id="from which there is a way out"),
        pytest.param("update(name, loss)\n        else:\n            print('done')", id="with a line for its end"),
    ],
)
def test_no_iteration_of_its_own_is_made_of_a_loop(body: str) -> None:
    put = 'losses = {"q": q_loss(x)}\n        losses["pi"] = pi_loss(x)'
    cell = OF_DICT.replace('losses = {"q": q_loss(x), "pi": pi_loss(x)}', put).replace("update(name, loss)", body)
    run = run_cells(START, cell)
    fixes = run.diagnosis.fixes if run.diagnosis is not None else ()
    assert all('update("pi"' not in fix.diff for fix in fixes)
