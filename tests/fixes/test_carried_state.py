from __future__ import annotations

import ast
import textwrap

import pytest

from inplace_magic.fixes.carried_state import detached
from inplace_magic.fixes.flow import binds, live_in, rebinds, slice_of

from .trying import fix_by, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    lstm = nn.LSTM(3, 4)
    head = nn.Linear(4, 1)
    opt = torch.optim.SGD([*cell.parameters(), *lstm.parameters(), *head.parameters()], lr=0.1)
    """


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(
            """
            total = 0
            for _ in range(3):
                total += head(torch.randn(2, 4)).pow(2).mean()
                opt.zero_grad()
                total.backward()
                opt.step()
            """,
            id="a sum that is never set back is no state to be cut",
        ),
        pytest.param(
            """
            h = cell(torch.randn(2, 3))
            for _ in range(3):
                loss = head(h).exp().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
            """,
            id="what is computed once, before the loop, is carried by nobody",
        ),
    ],
)
def test_is_not_proposed(cells: str) -> None:
    assert "carried_state" not in rules(START, cells)


NAME = """
    h = torch.zeros(2, 4)
    for step in range(3):
        opt.zero_grad()
        h_next = cell(torch.randn(2, 3), h)
        loss = head(h_next).exp().mean()
        loss.backward(retain_graph=True)  # 需要两次
        opt.step()
        h = h_next   # on to the next
    """
TUPLE = """
    state = None
    for step in range(3):
        out, state = lstm(torch.randn(5, 2, 3), state)
        loss = head(out).exp().mean()
        opt.zero_grad(); loss.backward(); opt.step()
    """
USED_LATER = """
    h = torch.zeros(2, 4)
    for step in range(3):
        h = cell(torch.randn(2, 3), h)
        loss = head(h).exp().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
    """
LAYERS = """
    hs = [torch.zeros(2, 3) for _ in range(2)]
    layers = [nn.GRUCell(3, 3), nn.GRUCell(3, 3)]
    for x in torch.randn(3, 4, 2, 3):
        for x_t in x:
            for i, layer in enumerate(layers):
                hs[i] = x_t = layer(x_t, hs[i])
        loss = hs[-1].exp().mean()
        loss.backward()
    """
DICT = """
    state = {"h": torch.zeros(2, 4)}
    for x in torch.randn(3, 2, 3):
        state["h"] = cell(x, state["h"])
        loss = head(state["h"]).exp().mean()
        loss.backward()
    """
EVERY_THIRD = """
    h, loss = torch.zeros(2, 4), 0
    for t, x in enumerate(torch.randn(9, 2, 3)):
        h = cell(x, h)
        loss = loss + head(h).exp().mean()
        if t % 3 == 2:
            loss.backward()
            opt.step(); opt.zero_grad()
            loss = 0
    """
STEP_IN_FUNCTION = """
    def train_step(x, h):
        h = cell(x, h)
        loss = head(h).exp().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return h

    h = torch.zeros(2, 4)
    for x in torch.randn(3, 2, 3):
        h = train_step(x, h)
    """


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            NAME,
            [("(retain_graph=True)  #", "()  #"), ("h = h_next   #", "h = h_next.detach()   #")],
            id="a name, where it is handed on; retain_graph goes",
        ),
        pytest.param(
            TUPLE,
            [("state)\n", "state)\n    state = tuple(h.detach() for h in state)\n")],
            id="a tuple that begins as None",
        ),
        pytest.param(
            USED_LATER,
            [("opt.step()\n", "opt.step()\n    h = h.detach()\n")],
            id="a state that its own round still needs, once the round is over",
        ),
        pytest.param(
            LAYERS,
            [("loss.backward()", "loss.backward()\n    hs = [h.detach() for h in hs]")],
            id="a list with a state for each layer",
        ),
        pytest.param(
            DICT,
            [("loss.backward()", "loss.backward()\n    state = {key: h.detach() for key, h in state.items()}")],
            id="a dict of states",
        ),
        pytest.param(
            EVERY_THIRD,
            [("opt.step();", "opt.step(); h = h.detach();")],
            id="a backward every few steps keeps the state whole until then",
        ),
        pytest.param(
            STEP_IN_FUNCTION,
            [("h = train_step(x, h)", "h = train_step(x, h)\n    h = h.detach()")],
            id="a state that a function takes and gives back is cut by its caller",
        ),
    ],
)
def test_is_cut_where_it_is_carried(cell: str, changes: list[tuple[str, str]]) -> None:
    fix = fix_by("carried_state", START, cell)
    assert fix.cells == {2: rewritten(cell, *changes)}
    assert fix.gradients == "truncated"


def test_a_cell_that_goes_on_from_its_last_run_cuts_on_entry() -> None:
    again = """
        h = cell(torch.randn(2, 3), h)
        loss = head(h).exp().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        """
    fix = fix_by("carried_state", START, "h = torch.zeros(2, 4)", again, again)
    assert fix.cells == {4: rewritten(again, ("h = cell", "h = h.detach()\nh = cell"))}


MEMORY = """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Linear(3, 3)
            self.M = None

        def forward(self, x):
            if self.M is None:
                self.M = torch.zeros(3, 3)
            k = self.k(x)
            out = torch.tanh(k @ self.M) + k
            self.M = self.M + k.t() @ k
            return out

    net = Memory()
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    """
SEGMENTS = """
    for x in torch.randn(3, 2, 3):
        loss = net(x).exp().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    """


def test_a_module_that_keeps_its_state_is_cut_in_its_class() -> None:
    fix = fix_by("carried_attribute", START, MEMORY, SEGMENTS)
    assert fix.cells == {2: rewritten(MEMORY, ("self.M + k.t() @ k", "(self.M + k.t() @ k).detach()"))}
    assert fix.gradients == "truncated"


REPLAY = """
    class Buffer:
        def __init__(self, size):
            self.outputs, self.at = torch.zeros(size, 4), 0

        def add(self, rows):
            for row in rows:
                self.outputs[self.at] = row   # round robin
                self.at = (self.at + 1) % len(self.outputs)

    net = nn.Linear(3, 4)
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    buffer = Buffer(6)
    """
REPLAYED = """
    for x in torch.randn(3, 2, 3):
        out = net(x)
        loss = out.exp().mean() + (out.mean(0) - buffer.outputs).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        buffer.add(out)
    """


def test_what_is_written_into_a_part_of_a_state_is_cut_there() -> None:
    fix = fix_by("carried_attribute", START, REPLAY, REPLAYED)
    assert fix.cells == {2: rewritten(REPLAY, ("= row ", "= row.detach() "))}
    assert fix.gradients == "truncated"


def test_or_in_the_loop_once_a_round_is_over() -> None:
    fix = fix_by("kept_object", START, MEMORY, SEGMENTS)
    assert fix.cells == {3: rewritten(SEGMENTS, ("optim.step()", "optim.step()\n    net.M = net.M.detach()"))}


AVERAGE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.average = self.lin(torch.ones(1, 3)).tanh()
            self.average = self.average * 2

        def forward(self, x, state):
            return torch.tanh(self.lin(x) + state) + self.average

    net = Net()
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    """
CUT_ALREADY = """
    state = torch.zeros(1, 3)
    for x in torch.randn(3, 2, 3):
        state = net(x, state.detach())
        loss = state.exp().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    """


def test_a_cut_that_does_not_help_is_no_part_of_a_fix() -> None:
    fix = fix_by("kept_object", START, AVERAGE, CUT_ALREADY)
    assert fix.cells == {
        3: rewritten(CUT_ALREADY, ("optim.step()", "optim.step()\n    net.average = net.average.detach()"))
    }
    assert "carried_state" not in rules(START, AVERAGE, CUT_ALREADY)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Tensor", "s.detach()"),
        ("list[tuple[Tensor]]", "[tuple(h.detach() for h in state) for state in s]"),
        ("sequence[Tensor]", "type(s)(*(h.detach() for h in s))"),
    ],
)
def test_every_shape_has_its_expression(kind: str, text: str) -> None:
    assert detached("s", kind) == text


def block(text: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(text)).body


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        pytest.param("x = y\nz = x", {"y"}, id="what a block makes itself it does not need"),
        pytest.param("for i in r:\n    x = i\nz = x", {"r"}, id="a loop is taken to run"),
        pytest.param("if c:\n    x = 1\nz = x", {"c", "x"}, id="one branch alone does not bind"),
        pytest.param("x += 1", {"x"}, id="an augmented assignment needs the old value"),
        pytest.param("s[0] = x", {"x"}, id="an item is written into what may hold more"),
    ],
)
def test_what_a_block_needs(text: str, needed: set[str]) -> None:
    assert live_in(block(text)) == needed


def test_what_a_value_was_made_from() -> None:
    body = block("a = f(x)\nb = g(y)\nlist.append(a)\nloss = h(list)\n")
    found, needed = slice_of(body, {"loss"})
    assert [ast.unparse(s) for s in found] == ["a = f(x)", "list.append(a)", "loss = h(list)"]
    assert "b" not in needed
    assert binds(body[2]) == {"list"}
    assert rebinds(body[2]) == set()
