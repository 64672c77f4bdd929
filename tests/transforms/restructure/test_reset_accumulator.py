from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell, head = nn.GRUCell(2, 4), nn.Linear(4, 1)
    opt = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    """
CARRIED = """
    h = torch.zeros(3, 4)
    losses = []
    for step, x in enumerate(torch.randn(8, 3, 2)):
        h = cell(x, h)
        losses.append(head(h).square().mean())
        if {test}:
            loss = sum(losses)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


@pytest.mark.parametrize(
    ("carried", "line"),
    [
        pytest.param("h", "            h, losses = h.detach(), []", id="with the state that is handed on"),
        pytest.param("h.detach()", "            losses.clear()", id="alone"),
    ],
)
def test_what_several_iterations_collect_begins_anew_where_it_is_used_up(carried: str, line: str) -> None:
    run = run_cells(START, CARRIED.format(test="(step + 1) % 4 == 0").replace("x, h)", f"x, {carried})"))
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].cells[2].rstrip().endswith(f"opt.step()\n{line}".replace("\n        ", "\n    "))


def test_a_memory_that_asks_how_full_it_is_stays_full() -> None:
    run = run_cells(START, CARRIED.format(test="len(losses) > 3"))
    assert run.diagnosis is not None
    assert "losses.clear()" not in run.diagnosis.fixes[0].diff and "[]" not in run.diagnosis.fixes[0].diff


EPISODES = """
    policy = nn.Linear(2, 2)
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    log_probs, rewards = [], []
    def finish():
        loss = sum(-log_prob * reward for log_prob, reward in zip(log_probs, rewards))
        opt.zero_grad()
        loss.backward()
        opt.step()
        rewards[:] = []
    """
PLAYED = """
    for episode in range(2):
        for state in torch.randn(3, 2):
            log_probs.append(policy(state).log_softmax(0)[0])
            rewards.append(1.0)
        finish()
    """


def test_a_list_of_which_a_shorter_one_leaves_out_the_newest_is_emptied_with_it() -> None:
    run = run_cells(START, EPISODES, PLAYED)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.title) == ("reset_accumulator", "log_probs.clear(); rewards.clear()")


KEPT = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net, logs = nn.Linear(3, 2), {"seen": []}
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    def add_up(book, x):
        for row in net(x):
            book["loss"] = book["loss"] + row.square().sum()
    """
TWO_PASSES = """
    for x in torch.randn(2, 4, 3):
        logs["loss"] = 0
        add_up(logs, x)
        opt.zero_grad()
        logs["loss"].backward()
        opt.step()
        add_up(logs, x)
        logs["loss"].backward()
        opt.step()
    """


def test_an_item_that_a_helper_adds_to_starts_anew_for_the_second_pass() -> None:
    fix = fix_by("reset_accumulator", KEPT, TWO_PASSES)
    old, new = "    opt.step()\n    add_up", '    opt.step()\n    logs["loss"] = 0\n    add_up'
    assert fix.cells == {2: rewritten(TWO_PASSES, (old, new))}


def test_a_list_that_is_read_behind_the_loop_is_not_emptied_at_first() -> None:
    run = run_cells(START, CARRIED.format(test="(step + 1) % 4 == 0").rstrip() + "\n    print(len(losses))\n")
    assert run.diagnosis is not None
    assert "losses = h.detach(), [h.detach() for h in losses]" in run.diagnosis.fixes[0].cells[2]


REMEMBERED = """
    from collections import deque
    policy = nn.Linear(2, 2)
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    class Memory:
        def __init__(self):
            self.steps, self.seen = deque(maxlen=100), 0
        def push(self, *step):
            self.steps.append(step)
            self.seen += 1
        def clear(self):
            {clear}
    def learn(memory):
        loss = -torch.stack([log_prob * reward for log_prob, reward in {taken}]).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()
    memory = Memory()
    """
LEARNED = """
    for episode in range(2):
        for state in torch.randn(3, 2):
            memory.push(policy(state).log_softmax(0)[0], 1.0)
        learn(memory)
    """


@pytest.mark.parametrize(
    ("clear", "line"),
    [
        pytest.param("self.steps.clear()", "    memory.clear()\n", id="by the method that was written for it"),
        pytest.param("self.__init__()", "    memory.steps.clear()\n", id="itself where a method does more"),
    ],
)
def test_a_memory_that_an_object_keeps_is_emptied_once_it_is_learned_from(clear: str, line: str) -> None:
    start = clean(START + REMEMBERED.format(clear=clear, taken="memory.steps"))
    run = run_cells(start, LEARNED)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.rule == "reset_accumulator"
    assert first.cells[1].rstrip() == start.replace("    return loss.item()", f"{line}    return loss.item()").rstrip()


def test_a_memory_that_an_object_keeps_stays_full_where_each_loss_takes_some_of_it() -> None:
    start = clean(START + REMEMBERED.format(clear="self.steps.clear()", taken="list(memory.steps)[::2]"))
    run = run_cells(start, LEARNED)
    assert run.diagnosis is not None
    assert all("clear()" not in fix.title for fix in run.diagnosis.fixes)


def test_a_list_that_is_added_to_begins_empty() -> None:
    start = "import torch\nw = torch.ones(3, requires_grad=True)\ndef losses_of(x):\n    return [(w * part).exp().mean() for part in x.split(2)]"
    cell = "for x in torch.ones(2, 4, 3):\n    losses = losses_of(x)\n    sum(losses).backward()\n    losses += losses_of(x + 1)\n    sum(losses).backward()\n"
    fix = fix_by("reset_accumulator", start, cell)
    assert fix.title == "losses = []"
    assert fix.cells == {2: cell.replace("    losses +=", "    losses = []\n    losses +=").rstrip()}


SHARPNESS = """
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    class Sharpness:
        def __init__(self):
            self.total, self.losses = 0, []
        def accumulate(self, x):
            for row in x:
                self.total = self.total + net(row).square().mean()
        def move(self, by):
            with torch.no_grad():
                for p in net.parameters():
                    p.add_(by * p.grad)
        def step(self, x):
            self.total = 0
            self.accumulate(x)
            self.total.backward()
            self.move(0.1)
            net.zero_grad()
            self.accumulate(x)
            self.total.backward()
            self.move(-0.2)
    trainer = Sharpness()
    """


def test_a_sum_that_a_method_adds_to_starts_anew_for_the_second_pass() -> None:
    run = run_cells(START, SHARPNESS, "for x in torch.randn(3, 5, 4):\n    trainer.step(x)")
    assert run.diagnosis is not None
    second = "net.zero_grad()\n        self."
    anew = rewritten(
        SHARPNESS, (second + "accumulate", "net.zero_grad()\n        self.total = 0\n        self.accumulate")
    )
    assert run.diagnosis.fixes[0].cells[2].rstrip() == anew


@pytest.mark.parametrize("put", ["losses.append({})", "losses.extend([{}])"])
def test_a_list_of_losses_starts_anew_for_the_second_pass(put: str) -> None:
    line = put.format("head(x).square().mean()")
    passes = f"losses = []\nfor w in (0, 1):\n    x = torch.randn(5, 4)\n    losses = []\n    {line}\n    sum(losses).backward()\n    opt.step()\n    {line}\n    sum(losses).backward()\n    opt.step()"
    run = run_cells(START, passes)
    assert run.diagnosis is not None
    head, _, tail = passes.rpartition(f"    {line}")
    assert run.diagnosis.fixes[0].cells[2] == f"{head}    losses = []\n    {line}{tail}"


QUEUE = """
    body, heads = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4)), [nn.Linear(4, 1) for _ in range(2)]
    z, other = body(torch.randn(5, 2)), torch.randn(5, 2)
    todo = [(torch.optim.SGD([*body.parameters(), *h.parameters()], 0.1), h(z).pow(2).mean()) for h in heads]
    while todo:
        opt, loss = todo.pop(0)
        loss = loss + body(other).pow(2).mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
    """


def test_what_is_bound_with_others_begins_anew_already() -> None:
    run = run_cells(START, QUEUE)
    assert run.diagnosis is not None
    assert all(fix.rule != "reset_accumulator" for fix in run.diagnosis.fixes)
