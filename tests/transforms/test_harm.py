"""What a fix must not do: begin anew what is no state, empty what is no part of a loss, lose what was written, or fail in a
branch that this run did not take.
"""

from __future__ import annotations

import pytest

from ..cells import run_cells
from .trying import fix_by, fixes, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    """
TRAINED = """
    for x in torch.randn(3, 3):
        loss = net(x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("def close(self): self.h, self.steps = None, -99", id="that sets something else as well"),
        pytest.param("def export(self): self.h = None; self.out = nn.Identity()", id="that changes a module"),
        pytest.param("def fresh(self): self.h = None; nn.init.normal_(self.out.weight)", id="that changes weights"),
        pytest.param("def stop(self): self.h = None; raise StopIteration", id="that ends a loop"),
    ],
)
def test_a_method_is_no_reset(method: str) -> None:
    states = f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.out = nn.Linear(3, 3), nn.Linear(3, 1)
                self.h = torch.zeros(3)
                self.steps = 0
            {method}
            def forward(self, x):
                self.h = torch.tanh(self.cell(x) + self.h)
                return self.out(self.h)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        """
    name = method.partition("(")[0].removeprefix("def ")
    found = fixes(START, states, TRAINED)
    assert found and not any(f"{name}()" in fix.title for fix in found)


def test_a_reset_may_set_what_the_constructor_sets_beside_the_state() -> None:
    states = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.steps = nn.Linear(3, 3), 0
                self.steps = 0
                self.h = torch.zeros(3)
            def reset(self):
                self.steps = 0
                self.h = torch.zeros(3)
            def forward(self, x):
                self.h = torch.tanh(self.cell(x) + self.h)
                return self.h
        net = Net()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        """
    assert "net.reset()" in [fix.title for fix in fixes(START, states, TRAINED)]


def test_lists_that_no_loss_is_made_of_stay_full() -> None:
    cell = """
        preds, curve, lengths = [], [], []
        for x in torch.randn(4, 2, 3):
            preds.append(net(x))
            loss = torch.cat(preds).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            curve.append(loss.item())
            lengths.append(len(preds))
            print(len(curve), len(lengths))
        """
    assert fix_by("reset_accumulator", START, cell).title == "preds.clear()"


def test_a_constructor_empties_no_list() -> None:
    agent = """
        class Agent:
            def __init__(self):
                self.log_probs = []
                self.policy = nn.Linear(3, 2)
            def learn(self):
                loss = -torch.stack(self.log_probs).sum()
                opt.zero_grad()
                loss.backward()
                opt.step()
        agent = Agent()
        opt = torch.optim.SGD(agent.policy.parameters(), 0.1)
        """
    cell = """
        for episode in range(3):
            for x in torch.randn(4, 3):
                agent.log_probs.append(agent.policy(x).log_softmax(0)[0])
            agent.learn()
        """
    found = fixes(START, agent, cell)
    assert found and not any("__init__" in fix.title for fix in found)


def test_inner_steps_that_the_caller_reads_are_not_hidden_from_it() -> None:
    cell = """
        def adapt(model, x, y):
            loss = ((model(x) - y) ** 2).mean()
            grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
            for p, g in zip(model.parameters(), grads):
                p.sub_(0.1 * g)
            return model
        outer = 0
        for x, y in zip(torch.randn(2, 4, 3), torch.randn(2, 4, 1)):
            outer = outer + ((adapt(net, x, y)(x) - y) ** 2).mean()
        outer.backward()
        """
    assert "fast_weights" not in rules_or_none(START, cell)


def test_a_cut_stands_ahead_of_the_branch_that_lets_go_of_the_state() -> None:
    cell = """
        hidden, rnn = None, nn.LSTM(3, 4)
        opt = torch.optim.SGD(rnn.parameters(), 0.1)
        for i, x in enumerate(torch.randn(4, 5, 1, 3)):
            out, hidden = rnn(x, hidden)
            loss = out.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i == 7:
                hidden = None
        """
    fix = fix_by("detach", START, cell)
    cut = "    opt.step()\n    hidden = tuple(h.detach() for h in hidden)\n"
    assert fix.cells == {2: rewritten(cell, ("    opt.step()\n", cut))}


def test_a_backward_that_some_iterations_make_stays_in_the_loop() -> None:
    cell = """
        loss = 0
        for i, x in enumerate(torch.randn(8, 2, 3)):
            loss = loss + net(x).pow(2).mean()
            if i % 4 == 3:
                opt.zero_grad()
                loss.backward()
                opt.step()
        """
    assert "restructure" not in rules(START, cell)


def test_rows_of_what_the_loop_gives_another_value_are_not_taken_by_index() -> None:
    cell = """
        x, rows = torch.ones(6, 2, requires_grad=True) * 1, []
        for r in x.unbind(0):
            r *= 2
            rows.append(r)
            x = x.flip(0)
        torch.stack(rows).sum().backward()
        """
    assert "index_views" not in rules(START, cell)


def test_a_write_into_rows_that_are_read_as_a_whole_is_not_lost() -> None:
    cell = """
        x = torch.ones(3, 2, requires_grad=True) * 1
        for i, row in enumerate(x, start=1):
            if i < 3:
                row *= i
                print(row.sum())
        x.pow(2).sum().backward()
        """
    (fix,) = fixes(START, cell)
    assert (fix.rule, fix.gradients, fix.changes) == ("index_views", "same", ())


def test_items_that_a_function_goes_through_are_made_anew() -> None:
    cell = """
        def step(grads):
            ws = [p.exp() for p in net.parameters()]
            for w, g in zip(ws, grads):
                w -= 0.1 * g
            return sum(w.sum() for w in ws)
        step([p.detach() for p in net.parameters()]).backward()
        """
    line = "ws = [w - 0.1 * g for w, g in zip(ws, grads)]"
    loop = "for w, g in zip(ws, grads):\n        w -= 0.1 * g"
    fix = fix_by("out_of_place", START, cell)
    assert (fix.cells, fix.gradients) == ({2: rewritten(cell, (loop, line))}, "same")


def test_a_parameter_that_a_loop_goes_through_is_not_rebound() -> None:
    cell = """
        target = nn.Linear(3, 1)
        for p, q in zip(net.parameters(), target.parameters()):
            q.mul_(0.9)
            q.add_(0.1 * p.data)
        """
    assert rules(START, cell) == ["no_grad"]


def test_a_term_of_names_is_not_said_to_train_nothing() -> None:
    cell = """
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for x in torch.randn(2, 5, 3):
            old = net(x)
            for _ in range(2):
                new = net(x)
                loss = (new - 1).pow(2).mean() + (new - old).abs().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
        """
    assert all("trains nothing" not in change for fix in fixes(START, cell) for change in fix.changes)


def test_a_hook_that_gives_nothing_back_keeps_its_effect() -> None:
    start = """
        import torch
        w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        def double(g):
            g *= 2
        """
    cell = "h = w.exp()\nh.register_hook(double)\nh.sum().backward()"
    first = fixes(start, cell)[0]
    assert (first.rule, first.title) == ("hook", "return g * 2")


def test_a_total_that_begins_as_a_number_is_cut_behind_the_step() -> None:
    cell = """
        entropy = 0
        for epoch in range(3):
            for x in torch.randn(4, 3):
                entropy += net(x).sum()
            loss = entropy.pow(2)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    cuts = [fix for fix in fixes(START, cell) if fix.rule == "detach"]
    assert [fix.cells for fix in cuts] == [
        {2: rewritten(cell, ("opt.step()", "opt.step()\n    entropy = entropy.detach()"))}
    ]


def test_what_is_trained_is_not_made_anew() -> None:
    cell = """
        class Schedule(nn.Module):
            def __init__(self):
                super().__init__()
                self.logits, self.out = nn.Parameter(torch.zeros(4)), nn.Linear(3, 3)
                setattr(self, "alphas", torch.sigmoid(self.logits).cumprod(0))
            def forward(self, x):
                return (self.out(x) * getattr(self, "alphas")[0]).pow(2).mean()
        model = Schedule()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        for x in torch.randn(3, 2, 3):
            loss = model(x)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        """
    assert all("model = Schedule()" not in fix.title for fix in fixes(START, cell))


def rules_or_none(*cells: str) -> list[str]:
    """The rules of the fixes; none where none was found."""
    found = run_cells(*cells).diagnosis
    return [fix.rule for fix in found.fixes] if found is not None else []


def test_a_view_that_is_read_on_still_sees_what_is_written_into_what_it_is_a_view_of() -> None:
    step = """
        state, gain = torch.ones(3, 4), torch.ones(3, requires_grad=True)
        def step(state, control):
            speed, heading = state[:, 3], state[:, 2]
            state[:, 3] += control
            state[:, 2] += speed * control
            state[:, 0] += speed * torch.cos(heading)
            return state
        """
    found = fixes(START, step, "step(state.clone(), gain).sum().backward()")
    assert found and all(fix.gradients == "same" for fix in found)


def test_a_sum_that_no_backward_has_used_up_keeps_its_terms() -> None:
    program = """
        h = net.weight * 2
        acc, before = 0.0, None
        for row in [h * k for k in range(1, 4)]:
            acc = acc + (row**2).sum()
            if before is not None:
                before.mul_(0.5)
            before = row
        acc = acc + h.sum()
        acc.backward()
        """
    assert "reset_accumulator" not in rules(START, program)


def test_what_a_cell_has_changed_meanwhile_is_not_computed_again_without_that() -> None:
    made = "m = torch.softmax(net(torch.ones(4, 3)), 0)"
    trained = "opt.zero_grad()\nnet(torch.ones(3)).sum().backward()\nopt.step()"
    used = "(m * torch.arange(4.0)).pow(2).sum().backward()"
    weight = "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))"
    setup = START.replace("net = nn.Linear(3, 1)", weight)
    assert "recompute" in rules(setup, made, trained, used)
    changed = run_cells(setup, made, f"m -= m.mean()\n{trained}", used)
    assert changed.diagnosis is not None
    texts = ["".join(fix.cells.values()) for fix in changed.diagnosis.fixes if fix.rule == "recompute"]
    assert all("m.mean()" in text for text in texts)
