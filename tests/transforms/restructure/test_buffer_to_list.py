from __future__ import annotations

import pytest

from ..trying import fix_by, proposals

RULE = "buffer_to_list"


def edited(cell: str, write: str) -> str | None:
    found = proposals(RULE, "import torch", cell, write=write)
    return found[0].texts[2] if found else None


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("s = f(x)\nfor i in range(3):\n    s[i] = g(x)", "s[i]", id="it held something before"),
        pytest.param(
            "s = torch.zeros(3)\nfor i in range(3):\n    s[i] = g(s)", "s[i]", id="the whole of it is read inside"
        ),
        pytest.param("s = torch.zeros(3)\nfor i in idx:\n    s[i] = g(x)", "s[i]", id="no plain counting"),
        pytest.param("s = torch.zeros(3)\nfor i in range(0, 6, 2):\n    s[i] = g(x)", "s[i]", id="steps are left out"),
        pytest.param("s = torch.zeros(3)\nfor i in range(2, 3):\n    s[i] = g(x)", "s[i]", id="it begins too late"),
        pytest.param("s = torch.zeros(3, 3)\nfor i in range(3):\n    s[i, i] = g(x)", "s[i, i]", id="two indices"),
        pytest.param(
            "s = torch.zeros(3)\ns[0] = 1\nfor i in range(3):\n    s[i] = g(x)", "s[i]", id="the first is written twice"
        ),
        pytest.param(
            "i = 0\ns = torch.zeros(3)\nwhile i < 3:\n    s[i] = g(x)\n    i += 2",
            "s[i]",
            id="a while loop that leaves some out",
        ),
        pytest.param("s = torch.zeros(3)\nif a:\n    s[0] = g(x)", "s[0]", id="no loop"),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert edited(cell, write) is None


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param(
            "s = torch.zeros(n + 1, 2)  # all\ns[0] = start\nfor i in range(n):\n    s[i + 1] = f(s[i])\nprint(s)\n",
            "s[i + 1]",
            "s = [start]  # all\nfor i in range(n):\n    s.append(f(s[i]))\ns = torch.stack(s)\nprint(s)\n",
            id="a start and steps",
        ),
        pytest.param(
            "h = x.new_zeros(2, T, 3)\nh[:, 0] = x\nfor t in range(1, T):\n    h[:, t] = f(h[:, t - 1])\n", "h[:, t]",
            "h = [x]\nfor t in range(1, T):\n    h.append(f(h[t - 1]))\nh = torch.stack(h, dim=1)\n", id="along the second dimension",
        ),
        pytest.param(
            "i = 0\nu = torch.zeros(n)\nwhile i < n:\n    u[i] = f(x)\n    i += 1\n", "u[i]",
            "i = 0\nu = []\nwhile i < n:\n    u.append(f(x))\n    i += 1\nu = torch.stack(u)\n", id="a while loop that counts",
        ),
        pytest.param(
            "u = torch.zeros(n)\nfor i in range(1, n):\n    u[i] = f(u[i - 1])\n", "u[i]",
            "u = [torch.zeros(n)[0]]\nfor i in range(1, n):\n    u.append(f(u[i - 1]))\nu = torch.stack(u)\n", id="what it was made with is the start",
        ),
        pytest.param(
            "def run(x):\n    b = torch.zeros_like(x)\n    for c in range(3):\n        b[:, c:c+1] = g(x[:, c:c+1])\n        y = k(b[:, c:c+1])\n    return b\n",
            "b[:, c:c+1] = g(x[:, c:c+1])",
            "def run(x):\n    b = []\n    for c in range(3):\n        b.append(g(x[:, c:c+1]))\n        y = k(b[c])\n    return torch.cat(b, dim=1)\n",
            id="slices of width one, returned at once",
        ),
    ],
)  # fmt: skip
def test_collects_in_a_list(cell: str, write: str, expected: str) -> None:
    assert edited(cell, write) == expected


def test_is_proved() -> None:
    cell = """
        def rollout(w, n=4):
            states = torch.zeros(n + 1, 2)
            states[0] = torch.ones(2)
            for i in range(n):
                states[i + 1] = torch.sin(states[i] * w)
            return states
        """
    start = "import torch\nw = torch.ones(2, requires_grad=True)"
    fix = fix_by(RULE, start, cell, "rollout(w).sum().backward()")
    assert "states = [torch.ones(2)]" in fix.cells[2]
    assert (fix.gradients, fix.run) == ("same", (3,))
