from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten, rules, titles

RULE = "fast_weights"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param(
            "for p in net.parameters():\n    p -= lr * p.grad", "p -= lr * p.grad", id="an ordinary update by .grad"
        ),
        pytest.param(
            "gs = f()\nfor p, g in zip(net.parameters(), gs):\n    p.sub_(g)",
            "p.sub_(g)",
            id="nobody asks for gradients here",
        ),
        pytest.param(
            "x *= a\nx += b\ng, = torch.autograd.grad(net(x), x, create_graph=True)",
            "x *= a",
            id="what is written once more",
        ),
        pytest.param(
            "for _ in range(k):\n    g, = torch.autograd.grad(net(x), x, create_graph=True)\n    x -= g\n    x.clamp_(0, 1)\ny = net(x)",
            "x -= g",
            id="what the same iteration clamps",
        ),
        pytest.param(
            "gs = grad(l, ws)\nfor p, g in zip(ws, gs):\n    p.sub_(g)",
            "p.sub_(g)",
            id="a list of weights and no model",
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert titles(RULE, "import torch", cell, write=write) == []


START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(4, 2)
    """


@pytest.mark.parametrize(
    ("update", "step"),
    [
        pytest.param("p -= lr * g", "p - lr * g", id="augmented"),
        pytest.param("p.sub_(g.clamp(-1, 1), alpha=lr)", "p.sub(g.clamp(-1, 1), alpha=lr)", id="with a factor"),
    ],
)
def test_is_proved(update: str, step: str) -> None:
    cell = f"""
        def adapt(model, x, lr=0.1, k=2):
            for _ in range(k):
                loss = model(x).pow(2).mean()
                grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
                with torch.no_grad():
                    for p, g in zip(model.parameters(), grads):
                        {update}
            return model(x).pow(2).mean() + 0.1 * loss
        """
    expected = f"""
        def adapt(model, x, lr=0.1, k=2):
            fast = dict(model.named_parameters())
            for _ in range(k):
                loss = torch.func.functional_call(model, fast, (x,)).pow(2).mean()
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {{name: {step} for (name, p), g in zip(fast.items(), grads)}}
            return torch.func.functional_call(model, fast, (x,)).pow(2).mean() + 0.1 * loss
        """
    fix = fix_by(RULE, START, cell, "adapt(model, x).backward()")
    assert fix.cells == {2: clean(expected).rstrip()}


INNER = """
    loss = model(x).pow(2).mean()
    grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
    for (key, p), g in zip(model.named_parameters(), grads):
        p -= 0.1 * g
    meta = model(x).exp().mean()
    meta.backward()
    """
LISTED = """
    params = list(model.parameters())
    loss = model(x).pow(2).mean()
    grads = torch.autograd.grad(loss, params, create_graph=True)
    for p, g in zip(params, grads):
        p -= 0.1 * g
    meta = model(x).exp().mean()
    meta.backward()
    """


@pytest.mark.parametrize(
    ("cell", "step"),
    [
        pytest.param(
            INNER, "fast = {key: p - 0.1 * g for (key, p), g in zip(model.named_parameters(), grads)}", id="with names"
        ),
        pytest.param(
            LISTED, "fast = {name: p - 0.1 * g for (name, p), g in zip(model.named_parameters(), grads)}", id="listed"
        ),
        pytest.param(
            "name, rates = 'inner', {'inner': 0.1}\n" + clean(LISTED).replace("0.1 * g", "rates[name] * g"),
            "fast = {name_2: p - rates[name] * g for (name_2, p), g in zip(model.named_parameters(), grads)}",
            id="beside a name of the user's",
        ),
    ],
)
def test_an_inner_step_comes_before_whatever_cuts_the_meta_gradient(cell: str, step: str) -> None:
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.rule == RULE
    text = first.cells[2]
    assert step in text
    assert "functional_call(model, fast, (x,)).exp()" in text
    assert "truncated" not in [fix.gradients for fix in run.diagnosis.fixes]


OPTIMIZED = f"{START}opt = torch.optim.SGD(model.parameters(), lr=0.1)"
EACH_ITERATION = """
    for x, y in torch.randn(2, 2, 4, 2):
        loss = model(x).pow(2).mean()
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= 0.1 * g
        meta = model(y).exp().mean() + loss
        opt.zero_grad()
        meta.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    """
TASKS = """
    params = list(model.parameters())
    for batch in torch.randn(2, 3, 2, 4, 2):
        total = 0
        for x, y in batch:
            for _ in range(2):
                loss = model(x).pow(2).mean()
                grads = torch.autograd.grad(loss, params, create_graph=True)
                with torch.no_grad():
                    for p, g in zip(params, grads):
                        p.sub_(0.1 * g)
            total = total + model(y).exp().mean() + loss
        opt.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
    """
CARRIED = """
    def adapt(x):
        loss, total = model(x).pow(2).mean(), 0
        for _ in range(2):
            total = total + loss
            penalty = sum(p.pow(2).sum() for name, p in model.named_parameters() if "bias" not in name)
            grads = torch.autograd.grad(loss + penalty, model.parameters(), create_graph=True)
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads):
                    p -= 0.1 * g
            loss = model(x).exp().mean()
        return loss + total
    for x in torch.randn(2, 4, 2):
        meta = adapt(x)
        opt.zero_grad()
        meta.backward()
        opt.step()
    """
CALL = "torch.func.functional_call(model, fast, ({},))"
ON = "fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads)}"


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            EACH_ITERATION,
            (
                (
                    "    with torch.no_grad():\n        for p, g in zip(model.parameters(), grads):\n            p -= 0.1 * g",
                    "    fast = {name: p - 0.1 * g for (name, p), g in zip(model.named_parameters(), grads)}",
                ),
                ("model(y)", CALL.format("y")),
            ),
            id="from one iteration's step to its update",
        ),
        pytest.param(
            TASKS,
            (
                ("        for _ in", "        fast = dict(model.named_parameters())\n        for _ in"),
                ("model(x)", CALL.format("x")),
                ("grad(loss, params,", "grad(loss, fast.values(),"),
                (
                    "            with torch.no_grad():\n                for p, g in zip(params, grads):\n                    p.sub_(0.1 * g)",
                    f"            {ON.replace('p - 0.1 * g', 'p.sub(0.1 * g)')}",
                ),
                ("model(y)", CALL.format("y")),
            ),
            id="through the steps of one task",
        ),
        pytest.param(
            CARRIED,
            (
                ("    for _ in", "    fast = dict(model.named_parameters())\n    for _ in"),
                ("model.named_parameters() if", "fast.items() if"),
                ("penalty, model.parameters()", "penalty, fast.values()"),
                (
                    "        with torch.no_grad():\n            for p, g in zip(model.parameters(), grads):\n                p -= 0.1 * g",
                    f"        {ON}",
                ),
                ("model(x).exp()", f"{CALL.format('x')}.exp()"),
            ),
            id="to the iteration that begins with what was made of them",
        ),
    ],
)
def test_how_far_the_stepped_weights_go(cell: str, changes: tuple[tuple[str, str], ...]) -> None:
    run = run_cells(OPTIMIZED, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.cells[2].rstrip()) == (RULE, rewritten(cell, *changes))


def test_a_first_order_update_stays_an_update() -> None:
    cell = INNER.replace(", create_graph=True", "")
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == "no_grad"


NAMED = """
    import torch
    torch.manual_seed(0)
    w = torch.randn(3, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)
    """
ONE_STEP = """
    for x, y in torch.randn(2, 2, 3):
        g, = torch.autograd.grad((x @ w).pow(2), [w], create_graph=True)
        w -= 0.1 * g
        loss = (y @ w - 1).pow(2)
        opt.zero_grad()
        loss.backward()
        print(w.grad)
        opt.step()
    """
SEVERAL_STEPS = """
    for x, y in torch.randn(2, 2, 3):
        for _ in range(2):
            g, = torch.autograd.grad((x @ w).pow(2), [w], create_graph=True)
            w.sub_(g, alpha=0.1)
        loss = (y @ w - 1).pow(2)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            ONE_STEP, (("w -= 0.1 * g", "fast_w = w - 0.1 * g"), ("y @ w", "y @ fast_w")), id="what is read behind it"
        ),
        pytest.param(
            ONE_STEP.replace("opt.step()", "opt.step()\n        print(w.tolist())"),
            (("w -= 0.1 * g", "fast_w = w - 0.1 * g"), ("y @ w", "y @ fast_w")),
            id="but not what the optimizer has stepped",
        ),
        pytest.param(
            SEVERAL_STEPS,
            (
                ("    for _", "    fast_w = w\n    for _"),
                ("(x @ w).pow(2), [w]", "(x @ fast_w).pow(2), [fast_w]"),
                ("w.sub_(g", "fast_w = fast_w.sub(g"),
                ("y @ w", "y @ fast_w"),
            ),
            id="each of several steps goes on from the last",
        ),
    ],
)
def test_a_leaf_that_an_inner_step_is_written_into_keeps_its_name(
    cell: str, changes: tuple[tuple[str, str], ...]
) -> None:
    run = run_cells(NAMED, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.cells[2].rstrip() == rewritten(cell, *changes)
    assert "opt no longer updates w" not in "".join(first.changes)


HELD = """
    import torch
    torch.manual_seed(0)
    layers = {"w": torch.randn(3, 2, requires_grad=True), "v": torch.randn(2, 1, requires_grad=True)}
    rows = [torch.randn(3, 2, requires_grad=True), torch.randn(2, 1, requires_grad=True)]
    opt = torch.optim.SGD([*layers.values(), *rows], lr=0.1)
    def line(x, weights):
        w, v = weights.values() if isinstance(weights, dict) else weights
        return (torch.tanh(x @ w) @ v).exp().mean()
    """
OF_DICT = """
    def learn(x, y):
        grads = torch.autograd.grad(line(x, layers), layers.values(), create_graph=True)
        with torch.no_grad():
            for k, g in zip(layers, grads):
                layers[k].copy_(layers[k] - 0.1 * g)
        return line(y, layers)
    for x, y in torch.randn(2, 2, 4, 3):
        loss = line(x, layers) + learn(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
OF_LIST = """
    def learn(x, y, steps=2):
        for _ in range(steps):
            grads = torch.autograd.grad(line(x, rows), rows, create_graph=True)
            with torch.no_grad():
                for r, g in zip(rows, grads):
                    r.sub_(g, alpha=0.1)
        return line(y, rows)
    for x, y in torch.randn(2, 2, 4, 3):
        loss = line(x, rows) + learn(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
WITH = "    with torch.no_grad():\n"


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            OF_DICT,
            (
                (
                    f"{WITH}        for k, g in zip(layers, grads):\n            layers[k].copy_(layers[k] - 0.1 * g)",
                    "    fast_layers = {k: layers[k] - 0.1 * g for k, g in zip(layers, grads)}",
                ),
                ("return line(y, layers)", "return line(y, fast_layers)"),
            ),
            id="of a dict, by key",
        ),
        pytest.param(
            OF_DICT.replace("k, g in zip(layers,", "v, g in zip(layers.values(),").replace(
                "layers[k].copy_(layers[k] - 0.1 * g)", "v -= 0.1 * g"
            ),
            (
                (
                    f"{WITH}        for v, g in zip(layers.values(), grads):\n            v -= 0.1 * g",
                    "    fast_layers = {name: v - 0.1 * g for (name, v), g in zip(layers.items(), grads)}",
                ),
                ("return line(y, layers)", "return line(y, fast_layers)"),
            ),
            id="of a dict, by its values",
        ),
        pytest.param(
            OF_LIST,
            (
                ("    for _ in", "    fast_rows = rows\n    for _ in"),
                ("grad(line(x, rows), rows,", "grad(line(x, fast_rows), fast_rows,"),
                (
                    f"    {WITH}            for r, g in zip(rows, grads):\n                r.sub_(g, alpha=0.1)",
                    "        fast_rows = [r.sub(g, alpha=0.1) for r, g in zip(fast_rows, grads)]",
                ),
                ("return line(y, rows)", "return line(y, fast_rows)"),
            ),
            id="of a list, in several steps",
        ),
    ],
)
def test_leaves_that_a_container_holds_stay_in_it(cell: str, changes: tuple[tuple[str, str], ...]) -> None:
    run = run_cells(HELD, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.cells[2].rstrip()) == (RULE, rewritten(cell, *changes))


def test_items_that_the_code_has_made_itself_are_given_anew() -> None:
    run = run_cells(
        HELD,
        """
        def learn(x, y):
            fast = dict(layers)
            start = line(x, fast)
            grads = torch.autograd.grad(start, fast.values(), create_graph=True)
            for k, g in zip(layers, grads):
                fast[k] -= 0.1 * g
            return start + line(y, fast)
        loss = learn(*torch.randn(2, 4, 3))
        loss.backward()
        """,
    )
    assert run.diagnosis is not None
    assert "fast[k] = fast[k] - 0.1 * g" in run.diagnosis.fixes[0].cells[2]


AT_THE_TOP = """
    first = dict(w=rows[0], v=rows[1])
    for x, y in torch.randn(2, 2, 4, 3):
        start = line(x, first)
        grads = torch.autograd.grad(start, rows, create_graph=True)
        with torch.no_grad():
            for r, g in zip(rows, grads):
                r.sub_(g, alpha=0.1)
        loss = start + line(y, first) + sum(r.pow(2).sum() for r in rows)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("cell", "trained"),
    [
        pytest.param(AT_THE_TOP, "[*layers.values(), *rows]", id="which are read by another name"),
        pytest.param(OF_LIST, "layers.values()", id="which are trained by that step alone"),
    ],
)
def test_leaves_stay_what_they_are(cell: str, trained: str) -> None:
    held = HELD.replace("[*layers.values(), *rows]", trained)
    assert RULE not in rules(held, cell.replace("line(x, rows) + learn", "line(x, layers) + line(x, rows) + learn"))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param("model[1](model[0](y)).exp().mean()", id="by its parts"),
        pytest.param("query(y)", id="in a function that reads it by its own name"),
        pytest.param("asked(model, y)", id="as an argument"),
    ],
)
def test_nothing_where_the_model_is_read_otherwise_as_well(read: str) -> None:
    cell = f"""
        def query(y):
            return model(y).exp().mean()
        def asked(net, y):
            return net(y).exp().mean()
        {EACH_ITERATION.strip().replace("model(y).exp().mean() + loss", f"model(y).exp().mean() + loss + {read}").replace(chr(10), chr(10) + "    ")}
        """
    assert RULE not in rules(OPTIMIZED, cell)


STEPPED = """
    def stepped(ws, grads):
        with torch.no_grad():
            for {target} in {through}:
                {write}
        return ws
    def outer(ws, x):
        total = 0
        for _ in range(2):
            loss = (x @ ws[{first}] @ ws[{first}].t()).tanh().pow(2).mean()
            grads = torch.autograd.grad(loss, {values}, create_graph=True)
            ws = stepped(ws, grads)
            total = total + loss
        return total + (x @ ws[{first}]).exp().mean()
    """


@pytest.mark.parametrize(
    ("given", "parts", "line"),
    [
        pytest.param(
            "{'w': torch.ones(2, 3, requires_grad=True)}",
            {"target": "k, g", "through": "zip(ws, grads)", "write": "ws[k].copy_(ws[k] - 0.1 * g)", "first": "'w'", "values": "list(ws.values())"},
            "ws = {k: ws[k] - 0.1 * g for k, g in zip(ws, grads)}", id="of a dict",
        ),
        pytest.param(
            "[torch.ones(2, 3, requires_grad=True)]",
            {"target": "w, g", "through": "zip(ws, grads)", "write": "w -= 0.1 * g", "first": "0", "values": "ws"},
            "ws = [w - 0.1 * g for w, g in zip(ws, grads)]", id="of a list",
        ),
    ],
)  # fmt: skip
def test_a_function_that_gives_back_what_it_has_stepped_gives_back_weights_of_its_own(
    given: str, parts: dict[str, str], line: str
) -> None:
    cell = STEPPED.format(**parts)
    values = "weights.values()" if given.startswith("{") else "weights"
    loop = f"opt = torch.optim.SGD({values}, 0.1)\nopt.zero_grad()\nouter(weights, x).backward()\nopt.step()"
    run = run_cells(START, f"weights = {given}", cell, loop)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    block = (
        f"    with torch.no_grad():\n        for {parts['target']} in {parts['through']}:\n            {parts['write']}"
    )
    assert first.rule == RULE and first.cells == {3: rewritten(cell, (block, f"    {line}"))}


HELPER = """
    {decorated}
    def descend(params, grads, lr=0.1):
        {body}
    def meta_loss(model, x, y):
        losses = []
        for _ in range(2):
            losses.append(model(x).pow(2).mean())
            grads = torch.autograd.grad(losses[-1], model.parameters(), create_graph=True)
            descend(model.parameters(), grads)
        return model(y).exp().mean() + 0.3 * sum(losses)
    """
META = """
    for x, y in torch.randn(2, 2, 4, 2):
        meta = meta_loss(model, x, y)
        opt.zero_grad()
        meta.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("decorated", "body"),
    [
        pytest.param("@torch.no_grad()", "for p, g in zip(params, grads): p.copy_(p - lr * g)", id="decorated"),
        pytest.param(
            "", "with torch.no_grad():\n            for p, g in zip(params, grads): p.sub_(lr * g)", id="in a block"
        ),
    ],
)
def test_a_step_that_a_function_makes_is_made_by_the_code_that_calls_it(decorated: str, body: str) -> None:
    helper = HELPER.format(decorated=decorated, body=body)
    found = run_cells(OPTIMIZED, helper, META).diagnosis
    assert found is not None
    step = "p - 0.1 * g" if decorated else "p.sub(0.1 * g)"
    expected = rewritten(
        helper,
        ("    for _ in range(2):\n", "    fast = dict(model.named_parameters())\n    for _ in range(2):\n"),
        ("model(x)", CALL.format("x")),
        ("model.parameters(), create", "fast.values(), create"),
        ("descend(model.parameters(), grads)", ON.replace("p - 0.1 * g", step)),
        ("model(y)", CALL.format("y")),
    )
    assert (found.fixes[0].rule, found.fixes[0].cells) == (RULE, {2: expected})


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param(
            HELPER.format(decorated="", body="with torch.no_grad():\n            for p, g in zip(params, grads): p.sub_(lr * g)\n        print(lr)"),
            id="a function that does more",
        ),
        pytest.param(
            HELPER.format(decorated="@torch.no_grad()", body="for p, g in zip(params, grads): p.sub_(lr * g)").replace(
                "descend(model.parameters(), grads)", "g = 0.1; descend(model.parameters(), grads, g)"
            ),
            id="an argument that has the name of the loop's",
        ),
        pytest.param(
            HELPER.format(decorated="@torch.no_grad()", body="for p, g in zip(params, grads): p.sub_(lr * g)").replace(
                "descend(model.parameters(), grads)", "descend(model.parameters(), grads, float('0.1'))"
            ),
            id="an argument that is computed",
        ),
        pytest.param(
            "rate = 0.5\n" + clean(HELPER.format(decorated="@torch.no_grad()", body="for p, g in zip(params, grads): p.sub_(rate * g)")).replace(
                "    losses = []", "    losses, rate = [], 0.1"
            ),
            id="a name that is another's there",
        ),
        pytest.param(
            HELPER.format(decorated="@torch.no_grad()", body="for p, g in zip(params, grads): p.sub_(lr * g)").replace(
                "descend(model.parameters(), grads)",
                "descend(model.parameters(), torch.autograd.grad(losses[-1], model.parameters(), create_graph=True))",
            ),
            id="gradients that are taken in the call itself",
        ),
    ],
)  # fmt: skip
def test_such_a_step_stays_where_it_is_for(helper: str) -> None:
    found = run_cells(OPTIMIZED, helper, META).diagnosis
    assert found is not None
    assert RULE not in [fix.rule for fix in found.fixes]


LEARNER = """
    class Learner:
        def __init__(self, net): self.net = net
        def adapt(self, x):
            losses = []
            for _ in range(2):
                losses.append(self.net(x).pow(2).mean())
                grads = torch.autograd.grad(losses[-1], self.net.parameters(), create_graph=True)
                with torch.no_grad():
                    for p, g in zip(self.net.parameters(), grads): p -= 0.1 * g
            return losses
        def score(self, x, y):
            losses = self.adapt(x)
            return self.net(y).exp().mean() + 0.3 * sum(losses)
    """
OUTER = """
    learner = Learner(model)
    for x, y in torch.randn(2, 2, 4, 2):
        meta = learner.score(x, y)
        opt.zero_grad()
        meta.backward()
        opt.step()
    """


def test_an_object_keeps_the_stepped_weights_that_its_other_methods_read() -> None:
    found = run_cells(OPTIMIZED, LEARNER, OUTER).diagnosis
    assert found is not None
    call = "torch.func.functional_call(self.net, self.fast, ({},))"
    step = "with torch.no_grad():\n                for p, g in zip(self.net.parameters(), grads): p -= 0.1 * g"
    expected = rewritten(
        LEARNER,
        ("        for _ in", "        self.fast = dict(self.net.named_parameters())\n        for _ in"),
        ("self.net(x)", call.format("x")),
        ("self.net.parameters(), create", "self.fast.values(), create"),
        (step, "self.fast = {name: p - 0.1 * g for (name, p), g in zip(self.fast.items(), grads)}"),
        ("self.net(y)", call.format("y")),
    )
    assert (found.fixes[0].rule, found.fixes[0].cells) == (RULE, {2: expected})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(("self.net = net", "self.net = net; self.fast = 2"), id="the object keeps another thing under that name"),
        pytest.param(("losses = self.adapt(x)", "for _ in range(2): losses = self.adapt(x)"), id="the method is called several times"),
        pytest.param(("losses = self.adapt(x)", "losses = self.adapt(x) if len(x) else []"), id="an expression may not call it"),
        pytest.param(("losses = self.adapt(x)", "losses = []\n        if len(x): losses = self.adapt(x)"), id="a branch may not call it"),
        pytest.param(("        losses = []\n", "        losses = []\n        if not len(x): return losses\n"), id="it may end before"),
        pytest.param(("losses = self.adapt(x)", "losses = sum([self.adapt(v) for v in (x, x)], [])"), id="a comprehension calls it several times"),
        pytest.param(
            ("    def score", "    def tuned(self, x): self.adapt(x)\n    def score"), id="others call it, who read nothing"
        ),
        pytest.param(
            ("    def score", "    def guess(self, x): return self.net(x)\n    def score"), id="others read the model"
        ),
        pytest.param(
            ("    def score", "    def tuned(self, x):\n        self.adapt(x)\n        return self.net(x)\n    def score"),
            id="others call it as well",
        ),
        pytest.param(("self.net(y)", "torch.utils.checkpoint.checkpoint(self.net, y)"), id="the model is handed on"),
    ],
)  # fmt: skip
def test_they_are_not_kept_where(changes: tuple[str, str]) -> None:
    found = run_cells(OPTIMIZED, rewritten(LEARNER, changes), OUTER).diagnosis
    assert found is not None
    assert RULE not in [fix.rule for fix in found.fixes]
