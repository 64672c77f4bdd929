"""Copies that are added to a loss, and writes that go on with what earlier iterations have left."""

from __future__ import annotations

import textwrap

import pytest

from .programs import Program
from .running import watch

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor")


def notes(text: str) -> list[str]:
    text = textwrap.dedent(text)
    return [finding.changed_note for finding in watch(Program("by hand", text), text).findings]


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("nn.Linear(6, 1)((x + copied).view(1, 6)).sum()", id="the copy is an operand of a layer's input"),
        pytest.param("v.detach().sum() / (x.sum() + copied)", id="the sum is a denominator"),
        pytest.param("(lambda h: h + h.square())(x.sum() + copied)", id="the sum is used for something else as well"),
        pytest.param("(lambda h: h + h.square())(2 * (x.sum() + copied))", id="the scaled sum is used so"),
        pytest.param("(torch.tensor([v.sum(), v.mean()]) - v[:2]).mean()", id="old values are compared with new ones"),
        pytest.param("x.square().sum() * copied", id="the copy is a weight"),
        pytest.param("x.square().sum() + torch.tensor(v.sum().item())", id="the number was taken out on purpose"),
    ],
)
def test_a_copy_that_a_gradient_depends_on_or_that_was_meant_is_no_lost_term(loss: str) -> None:
    assert notes(f"copied = torch.tensor(v.sum())\nloss = {loss}\nloss.backward()\n") == []


def test_a_copy_that_is_only_added_is_a_lost_term() -> None:
    said = notes(
        "copied = torch.tensor([v.sum(), v.mean()]).mean()\nloss = x.square().sum() + 2 * copied\nloss.backward()\n"
    )
    assert said == ["copies values without their history"]


CARRIED = """
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([first, second], 0.1)
    data = torch.ones(3)
    for _ in range(3):
        optimizer.zero_grad()
        data += first
        data += second
        loss = data.square().sum()
        loss.backward()
        optimizer.step()
    """


def test_each_line_that_goes_on_with_earlier_iterations_is_said_once() -> None:
    assert notes(CARRIED) == ["continues the history of earlier iterations"] * 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CARRIED.replace("data += first", "data = data.detach()\n        data += first"), id="it is cut"),
        pytest.param(
            CARRIED.replace("data += first", "data = torch.ones(3)\n        data += first"), id="it begins anew"
        ),
        pytest.param(CARRIED.replace("optimizer.step()", "pass"), id="nothing is stepped"),
        pytest.param(
            """
            offset = nn.Parameter(torch.zeros(3))
            optimizer = torch.optim.SGD([offset], 0.1)
            data = torch.ones(3)
            data += offset
            one, other = data.sum(), (data * 2).sum()
            one.backward(retain_graph=True)
            optimizer.step()
            loss = other
            loss.backward()
            """,
            id="another loss of the same forward, behind the step",
        ),
    ],
)
def test_a_write_is_not_said_to_go_on_where(text: str) -> None:
    assert notes(text) == []
