from __future__ import annotations

import pytest

from inplace_magic.diagnosis import Fix

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten

RULE = "recompute"
START = """
    import functools
    import torch
    from torch import nn
    torch.manual_seed(0)
    """
TRAIN = """
    opt = torch.optim.SGD([w], lr=0.1)
    for x in torch.rand(3, 5, 4):
        loss = model(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def model(made: str, forward: str, functions: str = "") -> str:
    """A module whose parameter is ``w``, with what its constructor makes, its methods, and functions beside it."""
    lines = "\n".join(f"    {line}" for line in clean(forward).rstrip().splitlines())
    return f"""{clean(functions)}
class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = w
        {made}
{lines}
model = Mix()
"""


def fixed(cell: str) -> tuple[Fix, str]:
    fix = fix_by(RULE, START, "w = nn.Parameter(torch.rand(4, 4))", cell, TRAIN)
    return fix, fix.cells.get(3, "")


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            model("if len(w) > 2:\n            self.q = w.tanh()", "def forward(self, x):\n    return x @ self.q"),
            id="a choice of the constructor, which is made once",
        ),
        pytest.param(
            model(
                "self.state = None",
                """
                def forward(self, x):
                    if self.state is None:
                        self.state = torch.sigmoid(x @ self.w)
                    self.state = torch.tanh(self.state @ self.w + x)
                    return self.state
                """,
            ),
            id="where a state begins that an iteration hands on to the next",
        ),
        pytest.param(
            model(
                "self.rows = []",
                """
                def forward(self, x):
                    if not self.rows:
                        for i in range(2):
                            self.rows.append(self.w.tanh() * i)
                    return x @ self.rows[1]
                """,
            ),
            id="a list that would be filled on and on",
        ),
        pytest.param(
            model(
                "self.q = self.w.exp()",
                """
                def forward(self, x):
                    if self.training:
                        x = x @ self.q
                    return x @ self.q
                """,
            ),
            id="a test of something else",
        ),
    ],
)
def test_leaves_alone(cell: str) -> None:
    found = run_cells(*map(clean, (START, "w = nn.Parameter(torch.rand(4, 4))", cell, TRAIN))).diagnosis
    assert found is not None
    assert not [fix.title for fix in found.fixes if "each time" in str(fix.title) or "without" in str(fix.title)]


KEPT = [
    pytest.param(
        model(
            "self.q = None",
            """
            def forward(self, x):
                if self.q is None:  # the first time
                    # mixes
                    self.q = self.w.tanh()
                return x @ self.q
            """,
        ),
        "        if self.q is None:  # the first time\n            # mixes\n            self.q = self.w.tanh()\n",
        "        # mixes\n        self.q = self.w.tanh()\n",
        id="an attribute, and a comment",
    ),
    pytest.param(
        model("self.q = None", "def forward(self, x):\n    if self.q is None: self.q = self.w.tanh()\n    return x @ self.q"),
        "if self.q is None: self.q", "self.q", id="a test on the same line",
    ),
    pytest.param(
        model(
            "",
            """
            def forward(self, x):
                return x @ table(len(x))
            """,
            """
            def remember(f):
                seen = {}
                def g(*k):
                    if k not in seen:
                        seen[k] = f(*k)
                    return seen[k]
                return g
            table = remember(lambda n: w.tanh() * n)
            """,
        ),
        "table = remember(lambda n: w.tanh() * n)", "table = lambda n: w.tanh() * n", id="a lambda that a function of the person's wraps",
    ),
    pytest.param(
        model(
            "",
            "def forward(self, x):\n    return self.table(x)",
            """
            def lookup(f, seen):
                def g(n):
                    if n not in seen:
                        seen[n] = f(n)
                    return seen[n]
                return g
            def rows(n):
                return w.tanh() * n
            """,
        ).replace("model = Mix()", "model = Mix()\nrows = lookup(rows, {})\nMix.table = lambda self, x: x @ rows(len(x))"),
        "        if n not in seen:\n            seen[n] = f(n)\n", "        seen[n] = f(n)\n", id="a dict in a closure",
    ),
    pytest.param(
        model(
            "self.kept = {}",
            """
            def mixing(self, n):
                if n in self.kept:
                    return self.kept[n]
                rows = self.w.cos() * n
                self.kept[n] = rows / rows.norm()
                return self.kept[n]
            def forward(self, x):
                return x @ self.mixing(len(x))
            """,
        ),
        "        if n in self.kept:\n            return self.kept[n]\n", "", id="an early return of what is kept",
    ),
    pytest.param(
        model(
            "",
            """
            def prepare(self):
                if hasattr(self, "q"):
                    return
                self.q = self.w.tanh()
            def forward(self, x):
                self.prepare()
                return x @ self.q
            """,
        ),
        '        if hasattr(self, "q"):\n            return\n', "", id="an early return where an attribute is there",
    ),
    pytest.param(
        model(
            "self.kept = {}",
            """
            def forward(self, x):
                if len(x) in self.kept:
                    q = self.kept[len(x)]
                else:
                    q = self.w.tanh()
                    self.kept[len(x)] = q
                return x @ q
            """,
        ),
        "        if len(x) in self.kept:\n            q = self.kept[len(x)]\n        else:\n            q = self.w.tanh()\n            self.kept[len(x)] = q\n",
        "        q = self.w.tanh()\n        self.kept[len(x)] = q\n",
        id="the other branch of a test",
    ),
    pytest.param(
        model(
            "",
            """
            def forward(self, x):
                try:
                    q = self.q
                except AttributeError:
                    q = self.q = self.w.tanh()
                return x @ q
            """,
        ),
        "        try:\n            q = self.q\n        except AttributeError:\n            q = self.q = self.w.tanh()\n",
        "        q = self.q = self.w.tanh()\n",
        id="made where reading it fails",
    ),
    pytest.param(
        model("self.q = None", "def forward(self, x):\n    self.q = self.q if self.q is not None else self.w.tanh()\n    return x @ self.q"),
        "self.q if self.q is not None else self.w.tanh()", "self.w.tanh()", id="a conditional expression",
    ),
    pytest.param(
        model("self.kept = {}", "def forward(self, x):\n    return x @ self.kept.setdefault(len(x), self.w * self.w)"),
        "self.kept.setdefault(len(x), self.w * self.w)", "(self.w * self.w)", id="setdefault",
    ),
    pytest.param(
        model("", "@functools.lru_cache(maxsize=None)\ndef table(self, n):\n    return self.w.tanh() * n\ndef forward(self, x):\n    return x @ self.table(2)"),
        "    @functools.lru_cache(maxsize=None)\n", "", id="a decorator",
    ),
    pytest.param(
        model("", "@functools.cached_property\ndef table(self):\n    return self.w.tanh()\ndef forward(self, x):\n    return x @ self.table"),
        "@functools.cached_property", "@property", id="a decorator of an attribute",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "old", "new"), KEPT)
def test_is_proved(cell: str, old: str, new: str) -> None:
    fix, text = fixed(cell)
    assert text.rstrip() == rewritten(cell, (old, new))
    assert fix.gradients == "different" and not fix.untrained


def test_a_branch_of_three_stays() -> None:
    forward = """
        def forward(self, x):
            if len(x) > 9:
                return x
            elif self.q is None:
                self.q = self.w.tanh()
            return x @ self.q
        """
    _, text = fixed(model("self.q = None", forward))
    assert "elif self.q is None" in text


def test_a_global_of_a_function_is_made_each_time() -> None:
    made = """
        table = None
        def model(x):
            global table
            if table is None:
                table = torch.matrix_exp(w)
            return x @ table
        """
    _, text = fixed(made)
    old = "    if table is None:\n        table = torch.matrix_exp(w)\n"
    assert text == rewritten(made, (old, "    table = torch.matrix_exp(w)\n"))


def test_what_one_iteration_makes_for_the_others_is_made_in_each() -> None:
    loop = """
        anchor, opt = None, torch.optim.SGD([w], lr=0.1)
        for x in torch.rand(3, 5, 4):
            if anchor is None:
                anchor = (x @ w).tanh()
            loss = ((x @ w) * anchor).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by(RULE, START, "w = nn.Parameter(torch.rand(4, 4))", loop)
    old = "    if anchor is None:\n        anchor = (x @ w).tanh()\n"
    assert fix.cells == {3: rewritten(loop, (old, "    anchor = (x @ w).tanh()\n"))}


def test_a_value_kept_for_a_later_cell_is_made_for_it() -> None:
    made = """
        w, kept = nn.Parameter(torch.rand(4, 4)), {}
        def rotation(name):
            if name not in kept:
                kept[name] = torch.matrix_exp(w - w.t())
            return kept[name]
        """
    fix = fix_by(
        RULE, START, made, "rotation('r').sum().backward()", "loss = rotation('r').exp().sum()\nloss.backward()"
    )
    old = "    if name not in kept:\n        kept[name] = "
    assert fix.cells[2] == rewritten(made, (old, "    kept[name] = "))
    assert fix.gradients == "same"
