"""What a fix changes is measured and said: everyday programs of which a harmful fix once looked harmless."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inplace_magic import sandbox
from inplace_magic.diagnosis import Fix
from inplace_magic.message import kind_of
from inplace_magic.transforms.proposal import Reading
from inplace_magic.verify.bench import Bench

from ..cells import run_cells


def fixes(*cells: str) -> tuple[Fix, ...]:
    diagnosis = run_cells(*cells).diagnosis
    assert diagnosis is not None
    return diagnosis.fixes


def test_a_running_total_that_is_reset_says_what_it_prints() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = [(torch.randn(3, 4), torch.randn(3, 1)) for _ in range(4)]
        """
    cell = """
        total_loss = 0
        for x, y in loader:
            opt.zero_grad()
            total_loss += nn.functional.mse_loss(net(x), y)
            total_loss.backward()
            opt.step()
        print("mean loss", (total_loss / len(loader)).item())
        """
    for fix in fixes(setup, cell):
        if "total_loss = 0" in fix.title:
            assert fix.gradients == "different" and fix.changes[0].startswith("prints ")


def test_a_memory_that_is_emptied_is_no_cut() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        memory = []; net = nn.Linear(2, 2); x = torch.randn(3, 2)
        """
    cell = """
        for step in range(4):
            h = net(x)
            old = sum((m.pow(2).sum() for m in memory), torch.zeros(()))
            loss = h.pow(2).mean() * (1 + old)
            net.zero_grad()
            loss.backward()
            memory.append(h)
        """
    found = fixes(setup, cell)
    assert found[0].gradients == "truncated" and not found[0].changes
    cleared = [fix for fix in found if "clear()" in fix.title]
    assert all(fix.gradients == "different" and "memory has 0 items instead of 4" in fix.changes for fix in cleared)


def test_a_leaf_stays_a_leaf_in_the_first_fix() -> None:
    found = fixes("import torch\na = torch.ones(3, requires_grad=True)", "a += 1\n(a * 2).sum().backward()")
    assert (found[0].rule, found[0].gradients) == ("no_grad", "same")
    assert all(fix.gradients == "different" and fix.changes for fix in found[1:])


def test_a_leaf_that_is_scaled_in_a_cell_without_a_backward_stays_one() -> None:
    found = fixes("import torch\nW = torch.randn(3, 3, requires_grad=True)", "W *= 0.01")
    for fix in found:
        if "no_grad" not in fix.title:
            assert fix.gradients == "different"
            assert any("no longer a leaf" in clause for clause in fix.changes)


def test_a_write_that_has_been_made_already_is_seen_from_the_top() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(3, 3); x = torch.randn(4, 3) * 5; head = nn.Linear(3, 1)
        """
    cell = """
        out = head(net(x)).pow(2).mean()
        with torch.no_grad():
            for p in head.parameters():
                p.clamp_(-0.01, 0.01)
        out.backward()
        """
    found = fixes(setup, cell)
    assert found[0].gradients == "same" and "backward" in found[0].title
    for fix in found:
        if fix.rule == "recompute":
            assert fix.gradients == "different" and fix.changes


def test_rows_of_a_jacobian_are_not_summed() -> None:
    setup = """
        import torch
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True)
        y = torch.tanh(torch.randn(2, 3) @ x)
        """
    cell = """
        J = torch.zeros(2, 3)
        for i in range(2):
            y[i].backward()
            J[i] = x.grad
            x.grad.zero_()
        """
    found = fixes(setup, cell)
    assert found[0].title == "y[i].backward(retain_graph=True)" and found[0].gradients == "same"
    assert all("J has other values afterwards" in fix.changes for fix in found if fix.title.startswith("sum("))


def test_the_record_carries_it() -> None:
    found = fixes("import torch\na = torch.ones(3, requires_grad=True)", "a += 1\n(a * 2).sum().backward()")
    clause = "a.grad is None afterwards"
    assert replace(found[0], changes=(clause,)).to_dict()["changes"] == [clause]


def test_a_fix_under_which_no_step_has_a_gradient_is_not_called_the_same() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        policy = nn.Linear(4, 2); opt = torch.optim.SGD(policy.parameters(), lr=0.1)
        states, chosen, gain = torch.randn(6, 4), torch.randint(0, 2, (6, 1)), torch.randn(6)
        """
    cell = """
        old = policy(states).log_softmax(1).gather(1, chosen)[:, 0]
        for _ in range(3):
            new = policy(states).log_softmax(1).gather(1, chosen)[:, 0]
            loss = -((new - old).exp() * gain).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    found = fixes(setup, cell)
    assert found[0].title == "old = old.detach()" and found[0].gradients == "truncated"
    assert all(fix.gradients != "same" for fix in found)


CARRIED = """
    import torch, os
    from torch import nn
    torch.manual_seed(0)
    cell, h = nn.RNNCell(2, 2), torch.zeros(3, 2)
    opt = torch.optim.SGD(cell.parameters(), 0.1)
    """
CARRYING = """
    for step in range(2):
        h = cell(torch.ones(3, 2), h)
        opt.zero_grad()
        h.sum().backward()
        opt.step()
        {last}
    """


@pytest.mark.all_fixes
@pytest.mark.parametrize(
    ("last", "runs"), [("pass", 1), ("print(os.urandom(8).hex())", 2)], ids=["steady", "prints random bytes"]
)
def test_the_code_as_written_runs_twice_only_where_something_differs(
    monkeypatch: pytest.MonkeyPatch, last: str, runs: int
) -> None:
    numbers: set[int] = set()
    reference = Bench.inert_reference
    monkeypatch.setattr(
        Bench,
        "inert_reference",
        lambda bench, reading, number=0: (numbers.add(number), reference(bench, reading, number))[1],
    )
    first, *_ = fixes(CARRIED, CARRYING.format(last=last))
    assert (first.rule, first.gradients, first.changes) == ("detach", "truncated", ())
    assert len(numbers) == runs


TWO_UPDATES = """
    import torch, os
    from torch import nn
    torch.manual_seed(0)
    G, D = nn.Linear(2, 2), nn.Linear(2, 1)
    of_g, of_d = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
    """
UPDATING = """
    for step in range(2):
        fake = G(torch.ones(3, 2))
        out = D(fake).square().mean()
        loss = D(fake.detach()).mean()
        of_d.zero_grad()
        loss.backward()
        of_d.step()
        of_g.zero_grad()
        out.backward()
        of_g.step()
    print(os.urandom(8).hex())
    """


@pytest.mark.all_fixes
@pytest.mark.parametrize("cores", [1, 2])
def test_what_a_fix_changes_is_said_alike_where_runs_are_made_ahead_and_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    begun: list[int] = []
    ahead = Bench.inert_references_ahead

    @contextlib.contextmanager
    def counted(bench: Bench, reading: Reading, count: int) -> Iterator[None]:
        with ahead(bench, reading, count):
            begun.append(len(bench._begun))
            yield

    monkeypatch.setattr(Bench, "inert_references_ahead", counted)
    monkeypatch.setattr(sandbox, "_cores", lambda: cores)
    found = fixes(TWO_UPDATES, UPDATING)
    assert [(fix.rule, fix.gradients, fix.changes) for fix in found[:2]] == [
        ("move_step", "same", ()),
        ("recompute", "different", ()),
    ]
    assert begun[0] == (2 if cores > 1 else 0)


LEARNED = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    learned = nn.Linear(1, 1)
    outer = torch.optim.Adam(learned.parameters(), lr=0.01)
    W, goal = torch.randn(4, 4), torch.randn(4)
    """
UNROLLED = """
    theta, total = torch.randn(4, requires_grad=True), 0
    for step in range(1, 7):
        loss = (W @ theta - goal).pow(2).sum()
        total = total + loss
        grad, = torch.autograd.grad(loss, {asked}, retain_graph=True)
        theta = theta + 0.1 * learned(grad.detach()[:, None])[:, 0]
        if step % 2 == 0:
            outer.zero_grad()
            total.backward()
            outer.step()
            total = 0
    """


@pytest.mark.parametrize("asked", ["theta", "[theta]"])
def test_a_value_that_is_asked_for_its_gradient_requires_one_again_behind_the_cut(asked: str) -> None:
    fix = fixes(LEARNED, UNROLLED.format(asked=asked))[0]
    assert fix.title == "theta = theta.detach().requires_grad_()"
    assert fix.gradients == "truncated", "the reference goes through the graph that is freed by then as well"


def test_items_of_one_inference_tensor_are_compared_in_every_iteration() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        policy = nn.Linear(2, 1); opt = torch.optim.Adam(policy.parameters())
        batches = [torch.randn(5, 2) for _ in range(3)]

        @torch.inference_mode()
        def baseline():
            return torch.stack([policy(batch).squeeze(1) for batch in batches])
        values = baseline()
        """
    cell = """
        for batch, value in zip(batches, values):
            loss = (value * policy(batch).squeeze(1)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fixes(setup, cell)[0]
    assert (fix.rule, fix.gradients, fix.changes) == ("inference_mode", "same", ())


def test_a_parameter_that_is_written_through_a_view_made_without_grad_mode_is_updated() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        layer = nn.Linear(4, 6)
        with torch.no_grad():
            blocks = layer.weight.view(3, 2, 4)
        """
    fix = fixes(setup, "blocks[:2] *= 0.0")[0]
    assert (fix.rule, fix.gradients, fix.changes) == ("no_grad", "same", ())


ADVERSARIAL = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G, D, noise, real = nn.Linear(3, 3), nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 3)
    optG, optD = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
    """
TWO_LOSSES = """
    for step in range(2):
        fake = G(noise)
        optD.zero_grad()
        (D(real).mean() - D(fake.detach()).mean()).backward()
        optD.step()
        for inner in range(2):
            optG.zero_grad()
            fooled = -D(fake).mean()
            fooled.backward()
            rebuilt = (G(real) - real).pow(2).mean()
            rebuilt.backward()
            optG.step()
    """


@pytest.mark.all_fixes
def test_a_cut_after_which_a_backward_trains_nothing_says_so_and_comes_last() -> None:
    found = fixes(ADVERSARIAL, TWO_LOSSES)
    assert "fake = G(noise)" in found[0].title, "computed again in every inner iteration"
    for fix in found:
        if "detach" in fix.title:
            assert fix.gradients == "different" and "`fooled.backward()` trains nothing any more" in fix.changes


def test_parts_of_an_inference_tensor_that_share_memory_are_not_compared_apart() -> None:
    setup = """
        import torch
        w = torch.ones(2, 3, requires_grad=True)
        with torch.inference_mode():
            feats = torch.ones(2, 3)
        """
    cell = """
        feats[0].mul_(2)
        loss = (w * feats).sum()
        loss.backward()
        print(loss.item())
        """
    for fix in fixes(setup, cell):
        assert not any("prints" in clause for clause in fix.changes), "9.0 is what the code means"


SECOND_FAULT = """
    x = torch.randn(3, requires_grad=True)
    h = torch.sigmoid(x)
    h += 1
    h.sum().backward()
    print(x.grad.norm())
    undefined_name
    """


def test_what_ends_with_a_later_error_of_the_code_as_written_is_not_called_verified() -> None:
    (first, *_) = fixes("import torch", SECOND_FAULT)
    assert first.rule == "out_of_place" and not first.verified and first.gradients == "unknown"
    assert first.changes == ("ends with NameError: name 'undefined_name' is not defined, as the code as written does",)


def test_what_comes_to_the_end_is_offered_alone_where_the_code_as_written_ends_with_another_error() -> None:
    guided = """
        x = torch.randn(3, requires_grad=True)
        for t in range(4):
            noise = torch.tanh(x * 2)
            loss = (noise + x).square().sum()
            loss.backward()
            x = x - 0.1 * noise - 0.1 * x.grad
        """
    found = fixes("import torch", guided)
    assert found and all(fix.verified and not fix.changes for fix in found)


WEIGHT_USED_ONCE = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    edge, head = nn.Parameter(torch.ones(1)), nn.Linear(3, 1)
    opt = torch.optim.SGD([edge, *head.parameters()], 0.1)
    x = torch.ones(2, 3)
    """
UPDATE = "loss = head(x * scale).sum(); opt.zero_grad()\n    loss.backward()\n    opt.step()"


def test_a_cut_after_which_a_loss_trains_a_weight_no_more_names_both() -> None:
    trained = f"for _ in range(3):\n    scale = edge.exp()\n    {UPDATE}"
    found = fixes(WEIGHT_USED_ONCE, trained, f"for _ in range(3):\n    {UPDATE}")
    cuts = [fix for fix in found if fix.gradients == "truncated" and not fix.untrained]
    assert cuts and all("`loss.backward()` no longer trains edge" in fix.changes for fix in cuts)


def test_a_loss_that_a_cut_leaves_a_part_of_is_named() -> None:
    """The scores that weigh a generator's loss are those of the step before; cut off, they train it no more, and the rest does."""
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
        def update(opt, loss, keep=False):
            opt.zero_grad()
            loss.backward(retain_graph=keep)
            opt.step()
        """
    cell = """
        for z, x in zip(torch.randn(3, 5, 3), torch.randn(3, 5, 2)):
            fake = G(z)
            score = D(fake)
            update(opt_d, score.exp().mean(), keep=True)
            update(opt_g, (torch.sigmoid(-score) * (fake - x) ** 2).mean())
        """
    cuts = [fix for fix in fixes(start, cell) if fix.gradients == "truncated"]
    assert cuts and all("by a part of its loss alone" in "".join(fix.changes) for fix in cuts)


def test_gradients_that_differ_without_a_cut_are_said_to_reach_the_same_leaves() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        a, b = nn.Linear(3, 3), nn.Linear(3, 1)
        opt_a, opt_b = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (a, b))
        x = torch.randn(5, 3)
        """
    cell = """
        h = b(torch.tanh(a(x)))
        h.exp().mean().backward(retain_graph=True)
        opt_b.step()
        opt_a.zero_grad()
        h.square().mean().backward()
        opt_a.step()
        """
    found = {fix.rule: fix for fix in fixes(start, cell)}
    assert found["recompute"].gradients == "different" and not found["recompute"].changes
    assert kind_of(found["recompute"].proof) == "verified_alike"
    assert all(kind_of(fix.proof) != "verified_alike" for fix in found.values() if fix.gradients == "truncated")


def test_a_small_value_that_a_projection_clears_is_no_rounding() -> None:
    """No gradient reaches it, so that nothing but the value itself tells of it."""
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Filter(nn.Module):
            def __init__(self):
                super().__init__()
                self.response = nn.Parameter(torch.ones(40, dtype=torch.complex64) * (1 + 0.01j))
            def make(self):
                self.response.imag[0] = 0.0
                self.response.imag[-1] = 0.0
        net = Filter()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """
    cell = """
        for _ in range(3):
            loss = (net.response.real * torch.rand(40) - 1).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step(); net.make()
        """
    found = fixes(setup, cell)
    assert [fix.rule for fix in found] == ["no_grad", "out_of_place"] and found[0].gradients == "same"
    assert found[1].changes == ("net.response has other values afterwards",)


def test_an_update_by_hand_that_would_reach_no_parameter_any_more_is_no_fix() -> None:
    setup = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        def move(model):
            weights = list(model.parameters())
            with torch.no_grad():
                for i in range(len(weights)):
                    weights[i].copy_(weights[i] - 0.1 * weights[i].grad)
        def losses(x):
            y = net(x)
            yield y.square().mean()
            yield y.abs().mean()
        """
    cell = """
        for x in torch.randn(2, 5, 3):
            net.zero_grad()
            for loss in losses(x):
                loss.backward(retain_graph=True)
                move(net)
        """
    found = fixes(setup, cell)
    assert found[0].rule == "restructure"
    assert all("weights[i] = " not in text for fix in found for text in fix.cells.values())


def test_a_parameter_that_is_put_back_to_what_it_was_in_the_end_has_been_trained() -> None:
    setup = """
        import copy
        import torch
        from torch import nn
        net = nn.Linear(1, 1); nn.init.constant_(net.weight, 1.0); nn.init.zeros_(net.bias)
        best, low = copy.deepcopy(net.state_dict()), 0.1
        opt = torch.optim.SGD(net.parameters(), lr=0.1); h = torch.zeros(1)
        """
    cell = """
        for x in torch.ones(2, 4, 1):
            h = h + net(x).mean()
            opt.zero_grad()
            (h.pow(2).mean() * 0.5).backward()
            opt.step()
            now = net(x).pow(2).mean().item()
            if now < low:
                low, best = now, copy.deepcopy(net.state_dict())
        net.load_state_dict(best)
        """
    assert fixes(setup, cell)[0].title == "h = h.detach()"
