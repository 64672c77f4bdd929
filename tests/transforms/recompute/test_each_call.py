from __future__ import annotations

import pytest

from ..trying import clean, fix_by, fixes, rewritten

START = """
    import functools
    import torch
    from torch import nn
    torch.manual_seed(0)
    """
TRAIN = """
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(3, 2, 4):
        loss = net(x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def model(*body: str) -> str:
    head = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))
                self.kept, self.memo = None, {}
        """
    return clean(head) + "".join(f"    {line}\n" for line in body)


def test_a_module_that_keeps_what_no_leaf_is_stepped_for_goes_on_keeping_it() -> None:
    texts = model(
        "def forward(self, x):",
        "    if self.kept is None:",
        "        self.kept = scale.exp()",
        "    return (x @ self.weight * self.kept).exp()",
    )
    found = fixes(START, "scale = torch.ones(4, requires_grad=True)", texts, TRAIN)
    assert "self.kept.detach()" in found[0].diff, [fix.title for fix in found]


def test_a_branch_for_the_first_call_that_keeps_no_graph_is_left_alone() -> None:
    texts = model(
        "def forward(self, x):",
        "    if self.kept is None:",
        "        self.kept = x.mean(0)",
        "    return ((x - self.kept) @ self.weight).exp()",
    )
    loop = "net = Net()\nh = torch.zeros(4)\nfor x in torch.randn(3, 2, 4):\n    h = net(x + h).mean(0)\n    h.sum().backward()"
    found = fixes(START, texts, loop)
    assert found and all("is None" not in fix.diff for fix in found), [fix.diff for fix in found]


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        pytest.param(
            (
                "def forward(self, x):",
                "    if self.kept is None:  # once",
                "        # slow",
                "        self.kept = torch.linalg.matrix_exp(self.weight)",
                "    return x @ self.kept",
            ),
            [
                ("        if self.kept is None:  # once\n", ""),
                ("            # slow\n", "        # slow\n"),
                ("            self.kept = torch", "        self.kept = torch"),
            ],
            id="under a test for None",
        ),
        pytest.param(
            (
                "def forward(self, x):",
                "    if self.kept is not None:",
                "        w = self.kept",
                "    else:",
                "        w = self.weight.exp()",
                "        self.kept = w",
                "    return x @ w",
            ),
            [
                ("        if self.kept is not None:\n            w = self.kept\n        else:\n", ""),
                ("            w = self.weight", "        w = self.weight"),
                ("            self.kept = w", "        self.kept = w"),
            ],
            id="in the other branch of a test",
        ),
        pytest.param(
            (
                "def scale(self):",
                "    if 'scale' in self.memo:",
                "        return self.memo['scale']",
                "    self.memo['scale'] = self.weight.exp()",
                "    return self.memo['scale']",
                "def forward(self, x):",
                "    return x @ self.scale()",
            ),
            [("        if 'scale' in self.memo:\n            return self.memo['scale']\n", "")],
            id="behind an early return",
        ),
        pytest.param(
            (
                "def build(self):",
                "    self.table = self.weight.exp()",
                "def forward(self, x):",
                "    if not hasattr(self, 'table'):",
                "        self.build()",
                "    return x @ self.table",
            ),
            [("        if not hasattr(self, 'table'):\n            self.build()", "        self.build()")],
            id="by a method that is called under a test",
        ),
        pytest.param(
            (
                "@functools.cached_property",
                "def scale(self):",
                "    return self.weight.exp()",
                "def forward(self, x):",
                "    return x @ self.scale",
            ),
            [("@functools.cached_property", "@property")],
            id="by a cached property",
        ),
        pytest.param(
            (
                "@functools.lru_cache(maxsize=None)",
                "def scale(self):",
                "    return self.weight.exp()",
                "def forward(self, x):",
                "    return x @ self.scale()",
            ),
            [("    @functools.lru_cache(maxsize=None)\n", "")],
            id="by a decorator",
        ),
    ],
)
def test_what_a_cache_keeps_of_the_weights_is_computed_in_each_call(
    body: tuple[str, ...], changes: list[tuple[str, str]]
) -> None:
    texts = model(*body)
    fix = fix_by("recompute", START, texts, TRAIN)
    assert fix.cells == {2: rewritten(texts, *changes)}


def test_what_is_made_of_weights_that_others_train_is_computed_in_each_call_rather_than_to_go_stale() -> None:
    texts = model(
        "def forward(self, x):",
        "    if not hasattr(self, 'inverse'):",
        "        self.inverse = self.weight.exp()",
        "    return (x @ self.weight).tanh() + x @ self.inverse",
    )
    first, *others = fixes(START, texts, TRAIN)
    assert first.rule == "recompute" and any(fix.rule == "detach" for fix in others)


def test_what_the_first_batch_has_set_stays_set() -> None:
    texts = model(
        "def forward(self, x):",
        "    out = x @ self.weight",
        "    if self.kept is None:",
        "        self.kept = out.exp().mean()",
        "    return out.exp() / self.kept",
    )
    assert fixes(START, texts, TRAIN)[0].rule == "detach"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            ["if self.kept is None:", "    self.kept = nn.Linear(4, 4).weight * self.weight", "return x @ self.kept"],
            id="layers that an optimizer would know nothing of",
        ),
        pytest.param(
            [
                "if self.kept is None:",
                "    self.kept = self.weight.exp()",
                "    return x @ self.kept",
                "return x @ self.kept * 2",
            ],
            id="a branch that leaves the function",
        ),
    ],
)
def test_is_not_run_in_each_call(body: list[str]) -> None:
    found = fixes(START, model("def forward(self, x):", *(f"    {line}" for line in body)), TRAIN)
    assert all("if self.kept is None" not in fix.title for fix in found), [fix.title for fix in found]


COUNTED = """
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.edge, self.lin, self.kept, self.hits = nn.Parameter(torch.ones(3, 3)), nn.Linear(3, 3), None, 0
        def normal(self):
            if self.kept is None:
                a = torch.sigmoid(self.edge)
                self.kept = a / a.sum()
            else:
                self.hits += 1
            return self.kept
        def forward(self, x):
            a = self.normal()
            return self.lin(a @ x).mean()
    """


def test_a_cache_whose_other_branch_only_counts_is_computed_in_each_call_and_no_local_of_it_elsewhere() -> None:
    loop = """
        graph = Graph()
        opt = torch.optim.SGD(graph.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            graph(torch.ones(3, 3)).backward()
            opt.step()
        """
    found = fixes(START, COUNTED, loop)
    assert any("without `if self.kept is None`" in fix.title for fix in found)
    assert not [fix for fix in found if fix.cells.get(2, "").count("torch.sigmoid") > 1]


DEFAULT = """
    scale = torch.zeros(4, requires_grad=True)
    def score(x, *, w=scale.exp()):
        \"\"\"A weighted sum.\"\"\"
        return (x * w).sum()
    """


def test_a_default_argument_that_has_a_graph_is_computed_in_each_call() -> None:
    loop = "for x in torch.randn(3, 4):\n    loss = score(x).exp()\n    loss.backward()"
    fix = fix_by("recompute", START, DEFAULT, loop)
    sum_up = "    return (x * w).sum()"
    again = f"    if w is None:\n        w = scale.exp()\n{sum_up}"
    assert fix.cells == {2: rewritten(DEFAULT, ("w=scale.exp()", "w=None"), (sum_up, again))}


def test_in_a_method_it_is_computed_by_the_names_that_the_class_gives() -> None:
    define = """
        factor = 2.0
        class Weights:
            scale = torch.zeros(4, requires_grad=True)
            @staticmethod
            def score(x, *, w=factor * scale.exp()):
                return (x * w).sum()
        """
    loop = "for x in torch.randn(3, 4):\n    loss = Weights.score(x).exp()\n    loss.backward()"
    fix = fix_by("recompute", START, define, loop)
    sum_up = "        return (x * w).sum()"
    again = f"        if w is None:\n            w = factor * Weights.scale.exp()\n{sum_up}"
    assert fix.cells == {2: rewritten(define, ("w=factor * scale.exp()", "w=None"), (sum_up, again))}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("def score(x, w=scale.exp()): return (x * w).sum()", id="a function on one line"),
        pytest.param("def score(x, w=scale.exp()):\n    if w is None:\n        return x.sum()\n    return (x * w).sum()", id="one that knows what None is"),
        pytest.param("def score(x, w=scale.exp()):\n    return (x * w if torch.is_tensor(w) else x).sum()\nscore(torch.ones(4), None)", id="one that is called with None"),
        pytest.param("for k in range(2):\n    def score(x, w=scale[k].exp()):\n        return (x * w).sum()", id="one for each iteration"),
        pytest.param("class Outer:\n    class Loss:\n        own = scale * 1\n        def __call__(self, x, w=own.exp()):\n            return (x * w).sum()\nscore = Outer.Loss()", id="of a class that has no name where it is read"),
        pytest.param("def score(x, w=scale.exp()):\n    return (x * w).sum()\nscale = torch.ones(4)", id="a name that is another's by then"),
    ],
)  # fmt: skip
def test_a_default_argument_stays(given: str) -> None:
    found = fixes(
        START,
        f"scale = torch.zeros(4, requires_grad=True)\n{given}",
        "for x in torch.randn(3, 4):\n    score(x).exp().backward()",
    )
    assert all("=None" not in fix.diff for fix in found)


PARTIAL = """
    w = torch.ones(3, requires_grad=True)
    opt = torch.optim.LBFGS([w], max_iter=4)
    def closure(scale, values, power=1):
        opt.zero_grad()
        loss = (scale * values - 2).pow(2 * power).sum()
        loss.backward()
        return loss
    def values():
        return w.exp()
    """


@pytest.mark.parametrize(
    ("bound", "new"),
    [
        pytest.param("functools.partial(closure, 2, values())", "lambda: closure(2, values())", id="by position"),
        pytest.param("functools.partial((closure), 2, values())", "lambda: closure(2, values())", id="in brackets"),
        pytest.param(
            "functools.partial(closure, values=values(), scale=2)",
            "lambda: closure(values=values(), scale=2)",
            id="by name",
        ),
    ],
)
def test_what_is_bound_to_a_function_that_runs_several_times_is_computed_in_each_call(bound: str, new: str) -> None:
    cell = f"opt.step({bound})"
    fix = fix_by("recompute", START, PARTIAL, cell)
    assert fix.cells == {3: f"opt.step({new})"}


FACTORY = """
    net, x = nn.Linear(2, 2), torch.ones(3, 2)
    opt = torch.optim.LBFGS(net.parameters(), max_iter=4)
    def closure_of(values):
        def closure():
            opt.zero_grad()
            loss = (values - 2).square().sum()
            loss.backward()
            return loss
        return closure
    """


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        pytest.param("opt.step(closure_of(net(x)))", ("closure_of(net(x))", "lambda: closure_of(net(x))()"), id="handed to the step"),
        pytest.param("job = closure_of(net(x))\nopt.step(job)", ("closure_of(net(x))", "lambda: closure_of(net(x))()"), id="under a name"),
    ],
)  # fmt: skip
def test_a_closure_that_a_function_makes_of_a_graph_is_made_in_each_call(cell: str, change: tuple[str, str]) -> None:
    assert fix_by("recompute", START, FACTORY, cell).cells == {3: rewritten(cell, change).rstrip()}


SENT = """
    net, x = nn.Linear(2, 2), torch.ones(3, 2)
    opt = torch.optim.LBFGS(net.parameters(), max_iter=4)
    def sent(values, scale=1.0):
        opt.zero_grad()
        loss = (scale * values - 2).square().sum()
        loss.backward()
        return loss
    """


@pytest.mark.parametrize(
    ("cell", "new"),
    [
        pytest.param(
            "def fit():\n    u = net(x)\n    return opt.step(lambda: sent(u))\nfit()",
            "def fit():\n    return opt.step(lambda: sent(net(x)))\nfit()",
            id="a lambda",
        ),
        pytest.param(
            "def fit():\n    u = net(x) * 2\n    return [sent(u, scale) for scale in (1.0, 2.0)]\nfit()",
            "def fit():\n    return [sent((net(x) * 2), scale) for scale in (1.0, 2.0)]\nfit()",
            id="a comprehension",
        ),
        pytest.param(
            "u = net(x)\nlosses = {scale: sent(u, scale) for scale in (1.0, 2.0)}",
            "u = net(x)\nlosses = {scale: sent(net(x), scale) for scale in (1.0, 2.0)}",
            id="of a name of the session, which stays",
        ),
        pytest.param(
            "def fit():\n    u = net(x)\n    print(u.shape)\n    return [sent(u, scale) for scale in (1.0, 2.0)]\nfit()",
            "def fit():\n    u = net(x)\n    print(u.shape)\n    return [sent(net(x), scale) for scale in (1.0, 2.0)]\nfit()",
            id="of a name that is read beside it",
        ),
    ],
)
def test_what_is_sent_back_several_times_within_one_expression_is_computed_there(cell: str, new: str) -> None:
    assert fix_by("recompute", START, SENT, cell).cells == {3: new}


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("    u = net(x)\n    x = torch.zeros(3, 2)\n    return opt.step(lambda: sent(u))", id="bound anew by then"),
        pytest.param("    u = net(x)\n    x.zero_()\n    return opt.step(lambda: sent(u))", id="written by then"),
        pytest.param("    u = net(x)\n    return [sent(u, x[0, 0]) for x in (x, 2 * x)]", id="bound by the comprehension"),
        pytest.param("    u = net(x)\n    return opt.step(lambda x=torch.zeros(3, 2): sent(u))", id="an argument of the lambda"),
        pytest.param("    u = net(next(xs))\n    return opt.step(lambda: sent(u))", id="the next batch"),
    ],
)  # fmt: skip
def test_nothing_is_computed_there_of_what_means_another_value(cell: str) -> None:
    texts = [START, SENT, f"def fit(x, xs):\n{cell}\nfit(x.clone(), iter(torch.ones(9, 3, 2)))"]
    found = fixes(*texts)
    assert all("sent(net(" not in str(fix.cells) for fix in found)


def test_no_closure_that_counts_is_made_anew() -> None:
    counting = rewritten(
        FACTORY,
        ("    def closure():\n", "    count = 0\n    def closure():\n        nonlocal count\n        count += 1\n"),
    )
    found = fixes(START, counting, "opt.step(closure_of(net(x)))")
    assert all("lambda: closure_of" not in str(fix.cells) for fix in found)


def test_an_action_is_no_closure() -> None:
    play = """
        class Game:
            def step(self, action): return torch.ones(2)
        game, net = Game(), nn.Linear(2, 2)
        def act(q): return q.exp()
        """
    cell = """
        u = net(torch.ones(2))
        for _ in range(2):
            seen = game.step(act(net(torch.ones(2)).detach()))
            u.exp().sum().backward()
        """
    assert all("lambda" not in str(fix.cells) for fix in fixes(START, play, cell))


def test_what_is_bound_to_an_attribute_means_another_value() -> None:
    cell = """
        import types
        def fit(box):
            u = net(box.x)
            box.x = torch.zeros(3, 2)
            return opt.step(lambda: sent(u))
        fit(types.SimpleNamespace(x=x))
        """
    assert all("sent(net(" not in str(fix.cells) for fix in fixes(START, SENT, cell))


def test_in_a_loop_a_default_argument_that_the_loop_does_not_bind_is_computed_in_each_call() -> None:
    cell = """
        for day in range(2):
            def closure(u=net(x)):
                return sent(u)
            opt.step(closure)
        """
    new = ("closure(u=net(x)):\n", "closure(u=None):\n        if u is None:\n            u = net(x)\n")
    assert fix_by("recompute", START, SENT, cell).cells == {3: rewritten(cell, new).rstrip()}
