from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten, titles

RULE = "clone_at_save"


@pytest.mark.parametrize(
    ("cell", "about"),
    [
        pytest.param("a = lin(x)\nopt.step()", {"write": "opt.step()", "save": "lin(x)", "origin": "optim"}, id="an optimizer wrote"),
        pytest.param(
            "self.buf[ids] = 0.0", {"write": "self.buf[ids]", "save": "self.buf[ids]"}, id="a copy that would be written",
        ),
        pytest.param(
            "y = self.main(x)", {"write": "self.main(x)", "save": "self.main(x)", "origin": "nn"}, id="saved and written inside one call",
        ),
        pytest.param("y = f(x.clone().t()).clone()\nz[0] = 1", {"write": "z[0]", "save": "f(x.clone().t()).clone()"}, id="a copy of a copy"),
        pytest.param("y = f(x.clone().t()).clone()\nz[0] = 1", {"write": "z[0]", "save": "f(x.clone().t())"}, id="a copy where one is made of the result"),
    ],
)  # fmt: skip
def test_proposes_nothing(cell: str, about: dict[str, str]) -> None:
    assert titles(RULE, cell, **about) == []


@pytest.mark.parametrize(
    ("cell", "save", "write", "title"),
    [
        pytest.param("e = b ** 2\nb[0] = 1", "b ** 2", "b[0]", "b.clone()", id="an operand"),
        pytest.param("e = a * b\nb[0] = 1", "a * b", "b[0]", "b.clone()", id="of two operands the one that is written"),
        pytest.param("n = q @ self.queue.detach()\nself.queue[:, 0] = k", "q @ self.queue.detach()", "self.queue[:, 0]",
                     "self.queue.clone().detach()", id="in front of a detach"),
        pytest.param("e = f(x[:, 0].reshape(-1))\nx[:, 0] = 1", "f(x[:, 0].reshape(-1))", "x[:, 0]",
                     "x[:, 0].clone().reshape(-1)", id="behind the subscript"),
        pytest.param("l = torch.einsum('nk,k', [q, m])\nm.mul_(2)", "torch.einsum('nk,k', [q, m])", "m.mul_(2)", "m.clone()",
                     id="one of a list"),
        pytest.param("first = b[:1]\ne = b.sin()\nfirst.mul_(2)", "b.sin()", "first.mul_(2)", "b.clone()", id="written through a view"),
    ],
)  # fmt: skip
def test_saves_a_copy(cell: str, save: str, write: str, title: str) -> None:
    assert titles(RULE, cell, save=save, write=write)[0] == title


def test_parts_of_another_tensor_are_not_copied_as_a_whole() -> None:
    found = titles(RULE, "a, c = other\ne = a * c\nb[0] = 1", save="a * c", write="b[0]")
    assert not any("other" in title for title in found)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param(
            """
            h = torch.tanh(w)
            flipped = h.t()
            flipped[0] = 0
            h.sum().backward()
            """,
            """
            h = torch.tanh(w).clone()
            flipped = h.t()
            flipped[0] = 0
            h.sum().backward()
            """,
            id="a formula that keeps its own result",
        ),
        pytest.param(
            """
            emb = torch.nn.Embedding(4, 3, max_norm=0.1)
            a = emb.weight @ w.t()
            b = emb(torch.tensor([1, 2])) @ w.t()
            (a.sum() + b.sum()).backward()
            """,
            """
            emb = torch.nn.Embedding(4, 3, max_norm=0.1)
            a = emb.weight.clone() @ w.t()
            b = emb(torch.tensor([1, 2])) @ w.t()
            (a.sum() + b.sum()).backward()
            """,
            id="a lookup that renormalises the weight",
        ),
        pytest.param(
            """
            held = {"emb": torch.nn.Parameter(torch.ones(4, 3))}
            def look(ids):
                return torch.nn.functional.embedding(ids, held["emb"], max_norm=0.1)
            def loss(ids):
                scores = w @ held["emb"].t()
                return look(ids).sum() + scores.sum()
            loss(torch.tensor([1, 2])).backward()
            """,
            """
            held = {"emb": torch.nn.Parameter(torch.ones(4, 3))}
            def look(ids):
                return torch.nn.functional.embedding(ids, held["emb"], max_norm=0.1)
            def loss(ids):
                scores = w @ held["emb"].clone().t()
                return look(ids).sum() + scores.sum()
            loss(torch.tensor([1, 2])).backward()
            """,
            id="a weight of a dict, which another function looks up",
        ),
        pytest.param(
            """
            def terms(t):
                rows = [t[i] for i in range(len(t))]
                cubes, waves = (t ** 3).sum(), t.sinh().sum()
                for row in rows[::2]:
                    row.mul_(0.5)
                return cubes + waves + t.sum()
            terms(w * 2).backward()
            """,
            """
            def terms(t):
                rows = [t[i] for i in range(len(t))]
                cubes, waves = (t.clone() ** 3).sum(), t.clone().sinh().sum()
                for row in rows[::2]:
                    row.mul_(0.5)
                return cubes + waves + t.sum()
            terms(w * 2).backward()
            """,
            id="what views in a list share their memory with",
        ),
        pytest.param(
            """
            def advance(last):
                return torch.tanh(last * w[0])
            rows = torch.ones(4, 3)
            for n in range(3):
                last = rows[n]
                rows[n + 1] = advance(last)
            rows.sum().backward()
            """,
            """
            def advance(last):
                return torch.tanh(last.clone() * w[0])
            rows = torch.ones(4, 3)
            for n in range(3):
                last = rows[n]
                rows[n + 1] = advance(last)
            rows.sum().backward()
            """,
            id="a row that has a name of its own and is handed on",
        ),
        pytest.param(
            """
            class Path:
                def slope(self, n):
                    first, second, _ = self.rows[n].unbind()
                    return torch.stack([first * second, second * w[0, 0], first])
                def advance(self, n):
                    self.rows[n + 1] = self.slope(n)
            path = Path()
            path.rows = torch.ones(4, 3)
            for n in range(3):
                path.advance(n)
            path.rows.sum().backward()
            """,
            """
            class Path:
                def slope(self, n):
                    first, second, _ = self.rows[n].clone().unbind()
                    return torch.stack([first * second, second * w[0, 0], first])
                def advance(self, n):
                    self.rows[n + 1] = self.slope(n)
            path = Path()
            path.rows = torch.ones(4, 3)
            for n in range(3):
                path.advance(n)
            path.rows.sum().backward()
            """,
            id="parts of a row with names of their own",
        ),
    ],
)
def test_is_proved(cell: str, expected: str) -> None:
    fix = fix_by(RULE, "import torch\nw = torch.ones(2, 3, requires_grad=True)", cell)
    assert fix.cells == {2: clean(expected).rstrip()}
    assert fix.gradients == "same"


def test_what_another_object_leads_to_under_another_name_is_copied() -> None:
    scorer = """
        emb = torch.nn.Embedding(4, 3, max_norm=0.1)
        def scorer(table, ids):
            a = table.weight @ w.t()
            return a.sum() + (table(ids) @ w.t()).sum()
        """
    fix = fix_by(
        RULE,
        "import torch\nw = torch.ones(2, 3, requires_grad=True)",
        scorer,
        "scorer(emb, torch.tensor([1])).backward()",
    )
    assert "a = table.weight.clone() @ w.t()" in fix.cells[2] and fix.gradients == "same"


@pytest.mark.parametrize(
    "write",
    [
        pytest.param("x.detach().numpy()[...] *= 2 * grad.numpy()", id="at once"),
        pytest.param("a = x.detach().numpy()\n        a[...] *= 2 * grad.numpy()", id="under a name"),
        pytest.param("multiply(x.detach().numpy(), grad.numpy())", id="in a kernel"),
    ],
)
def test_a_function_whose_result_another_one_writes_in_its_backward_keeps_a_copy(write: str) -> None:
    made = """
        import torch
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                out = x.exp()
                ctx.save_for_backward(out)
                return out
            @staticmethod
            def backward(ctx, grad):
                out, = ctx.saved_tensors
                return grad * out
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                WRITE
                return x
        def multiply(a, b):
            a[...] *= 2 * b
        w = torch.ones(3, requires_grad=True)
        """
    run = run_cells(rewritten(made, ("WRITE", write)), "%%autograd_check\nSquare.apply(Exp.apply(w)).sum().backward()")
    assert run.diagnosis is not None
    assert "ctx.save_for_backward(out.clone())" in [fix.title for fix in run.diagnosis.fixes[:3]]
    assert run.diagnosis.fixes[0].gradients == "same"


QUEUE = """
    class Queue:
        def __init__(self):
            self.kept = torch.ones(4, 3)
        def peek(self):
            return self.kept
        def push(self, new):
            self.kept.copy_(torch.cat([new, self.kept[:-2]]))
    queue = Queue()
    def contrast(a, others):
        return (a @ others.t()).exp().mean()
    """


def test_what_a_method_gives_out_of_the_memory_that_another_one_writes_is_given_out_as_a_copy() -> None:
    cell = "loss = contrast(w * 2, queue.peek())\nqueue.push(torch.zeros(2, 3))\nloss.backward()"
    fix = fix_by(RULE, "import torch\nw = torch.ones(2, 3, requires_grad=True)", QUEUE, cell)
    assert fix.cells == {2: rewritten(QUEUE, ("return self.kept", "return self.kept.clone()"))}
    assert fix.gradients == "same"


def test_not_where_somebody_writes_through_what_is_given_out() -> None:
    cell = (
        "queue.peek().mul_(0.5)\nloss = contrast(w * 2, queue.peek())\nqueue.push(torch.zeros(2, 3))\nloss.backward()"
    )
    run = run_cells("import torch\nw = torch.ones(2, 3, requires_grad=True)", QUEUE, cell)
    assert run.diagnosis is not None
    assert not [fix.title for fix in run.diagnosis.fixes if "return self.kept" in fix.title]


@pytest.mark.parametrize(
    ("line", "save", "expected"),
    [
        pytest.param("y = f(g(x)).clone()", "f(g(x))", ["g(x).clone()"], id="not a result that is copied already"),
        pytest.param("y = f(g(x)).squeeze(-1)", "f(g(x))", ["f(g(x)).clone()", "g(x).clone()"], id="a result ahead of what looks at it"),
        pytest.param("y = (self.bus ** 2).mean()", "self.bus ** 2", ["(self.bus ** 2).clone()", "self.bus.clone()"], id="of a power, its base as well"),
    ],
)  # fmt: skip
def test_where_the_write_names_nothing_the_result_or_what_it_is_made_of_is_copied(
    line: str, save: str, expected: list[str]
) -> None:
    assert titles("clone_at_save", f"{line}\nh.mul_(2)", write="h.mul_(2)", save=save) == expected
