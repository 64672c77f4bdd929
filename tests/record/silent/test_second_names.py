"""Tensors under two names: which writes through one of them are meant for the other."""

from __future__ import annotations

import pytest

from .programs import Program
from .running import watch


def found(text: str) -> list[str]:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    return [str(finding.sentence) for finding in seen.findings]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("h = h.relu_()\nloss = (h + h.sin()).sum()", id="the name is bound to the result"),
        pytest.param("h.mul_(2).add_(1)\nloss = (h + h.sin()).sum()", id="a statement for the sake of the tensor"),
        pytest.param("old = h\nh *= 2\nloss = (h * old.shape[0] + h).sum()", id="the other name is asked for a shape"),
        pytest.param(
            "old = h\nh *= 2\nloss = (h + h.sin()).sum() if old is not None else 0", id="or whether it is there"
        ),
        pytest.param("old = h\nh *= 2\nold = h * 1\nloss = (h + old).sum()", id="the other name is bound anew"),
        pytest.param("old = h\nh *= 2\nloss = old.sum()", id="only one of them is read"),
        pytest.param("old = h.clone()\nh *= 2\nloss = (h * old).sum()", id="a copy"),
        pytest.param("old = h\nh.clamp_(-99, 99)\nloss = (h * 3 + old).sum()", id="no value is changed"),
        pytest.param(
            "rows = h.view(2, 3)\nrows[0] *= 2\nloss = (h * 3 + h.sin()).sum()", id="a view is there to be written"
        ),
        pytest.param("old = x\nwith torch.no_grad():\n    x *= 2\nloss = (x * 3 + old).sum()", id="a leaf is updated"),
        pytest.param(
            "cfg = type('Cfg', (), {'p': 0.5})\nh = torch.nn.functional.dropout(h, cfg.p, True, inplace=True)\nloss = (h + h.sin()).sum()",
            id="an attribute is handed over",
        ),
        pytest.param(
            "parts = [h, h * 3]\nfor part in parts:\n    part *= 2\nloss = (torch.cat(parts) + torch.cat([p.sin() for p in parts])).sum()",
            id="the items of a list are changed each",
        ),
        pytest.param(
            "out = {'h': h}\nh *= 2\nloss = (out['h'] + h.sin()).sum()",
            id="a dict was made ahead of what fills its values",
        ),
        pytest.param(
            "p = h.masked_fill_(h > 9, 0).softmax(0)\nloss = (p + h.log_softmax(0)).sum()",
            id="elements are set right for both",
        ),
        pytest.param(
            "old = h\nh *= 2\nloss = (h + h.sin()).sum()\nif False:\n    loss = loss + old.sum()",
            id="a branch that is not taken",
        ),
        pytest.param(
            "old = h\nh *= 2\nloss = (h + h.sin() + torch.zeros_like(old)).sum()", id="the other name gives a shape"
        ),
        pytest.param(
            "old = h\nh *= 2\nloss = (h + h.sin()).sum()\nprint(old.detach().norm())", id="the other name is printed"
        ),
        pytest.param(
            "def block(e):\n    e += torch.stack([e, e]).sum(0)\n    return e * 3, e\n"
            "for _ in range(2):\n    y, h = block(h)\nloss = (y + h).sum()",
            id="the function that changed it is handed it once more",
        ),
        pytest.param(
            "rows = []\nfor i in range(3):\n    row = h * i\n    rows.append(row)\n    row += 1\nloss = torch.stack(rows).sin().sum()",
            id="a list of tensors of their own",
        ),
        pytest.param(
            "def double_(value):\n    value *= 2\n    return value\ndouble_(h)\nloss = (h * 3 + h.sin()).sum()",
            id="a helper is called for its effect",
        ),
        pytest.param(
            "def push(value):\n    value *= 2\n    return value.detach().norm()\n"
            "size = push(h)\nloss = (h * size + h.sin()).sum()",
            id="a helper changes what it is handed and reports",
        ),
    ],
)
def test_a_write_may_be_meant_for_all_that_read_it(text: str) -> None:
    assert found(f"h = x * 2\n{text}\nloss.backward()\n") == []


def test_the_name_is_said_that_is_read_later() -> None:
    text = "h = x * 2\nraw = h\nh -= 1\nloss = (raw.exp() + h).sum()\nloss.backward()\n"
    assert found(text) == ["`sub_()` changed raw in place, which is read later with the new values."]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("h = torch.relu_(h)\nloss = (h * 3).sum()", id="the name is bound to what was written"),
        pytest.param("h.mul_(2)\nloss = h.sin().sum()", id="a statement for the sake of the tensor"),
        pytest.param(
            "h = torch.nn.ReLU(inplace=True)(h)\nloss = h.sum()", id="a module that writes the last it has made"
        ),
        pytest.param(
            "def block(x):\n    h = x * 2\n    old = h\n    h.relu_()\n    return old, h\n_, h = block(x)\nloss = h.sum()",
            id="a helper that gives back the tensor under both names",
        ),
    ],
)
def test_the_gradient_of_what_was_written_may_be_meant(text: str) -> None:
    assert found(f"h = x * 2\n{text}\ng = torch.autograd.grad(loss, h)[0]\nloss = (x * g.sum()).sum()\n") == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("e = torch.nn.functional.relu(h, inplace=True)\nloss = e.sum()", id="a flag"),
        pytest.param("loss = h.sigmoid_().sum()", id="a method"),
        pytest.param(
            "def rate(drive, cheap=True):\n    return torch.nn.functional.relu(drive, inplace=cheap)\nloss = rate(h).sum()",
            id="a helper that gives back what a flag lets it write",
        ),
    ],
)
def test_who_asks_for_the_gradient_of_a_name_reads_by_it(text: str) -> None:
    said = found(f"h = x * 2\n{text}\ng = torch.autograd.grad(loss, h)[0]\nloss = (x * g.sum()).sum()\n")
    assert len(said) == 1
    assert "changed h in place" in said[0]
