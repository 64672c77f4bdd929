"""Parameters that an optimizer was to hold and does not: they are told of; what is left out on purpose is not."""

from __future__ import annotations

import textwrap

import pytest

from ...cells import new_shell, run_in
from .programs import START, Program
from .running import watch

LOOP = "for _ in range({turns}):\n    opt.zero_grad()\n    loss = net(v.detach()).square().sum()\n    loss.backward()\n    opt.step()\n"
TRAINED = LOOP.format(turns=3)
CLASS = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            {layers}
            self.head = nn.Linear(3, 1)
        def forward(self, x):
            {each}
            return self.head(x)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    """
SEQUENTIAL = "net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))\n"
OPT = "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
SCHEDULER = "plan = torch.optim.lr_scheduler.StepLR(opt, 2)\n"
EACH = "for layer in self.layers: x = layer(x)"


def of_class(layers: str, each: str = EACH) -> str:
    return textwrap.dedent(CLASS.format(layers=layers, each=each)).lstrip("\n")


LISTED = of_class("self.layers = [nn.Linear(3, 3), nn.Linear(3, 3)]")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(of_class("self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])") + TRAINED, id="a ModuleList"),
        pytest.param(of_class("self.fc = nn.Linear(3, 3); self.layers = [self.fc]") + TRAINED, id="a list of registered layers"),
        pytest.param(LISTED + "opt.add_param_group({'params': [p for one in net.layers for p in one.parameters()]})\n" + TRAINED, id="they are added to the optimizer"),
        pytest.param(
            LISTED + "other = torch.optim.SGD([p for one in net.layers for p in one.parameters()], 0.1)\n" + TRAINED + "    other.step(); other.zero_grad()\n",
            id="another optimizer steps them",
        ),
        pytest.param(
            SEQUENTIAL + OPT + "net[2] = nn.Linear(3, 2)\nother = torch.optim.SGD(net[2].parameters(), 0.1)\n" + TRAINED, id="another optimizer holds them, and has not stepped yet"
        ),
        pytest.param(LISTED + "for one in net.layers: one.requires_grad_(False)\n" + TRAINED, id="they are frozen"),
        pytest.param(LISTED + "del net.layers[:]\n" + TRAINED, id="the list is empty"),
        pytest.param(of_class("self.layers = [nn.Linear(3, 3)]", "with torch.no_grad(): x = self.layers[0](x)") + TRAINED, id="a teacher that is hidden in a list"),
        pytest.param(LISTED + LOOP.format(turns=1), id="a single step"),
        pytest.param(SEQUENTIAL + OPT.replace("net.parameters()", "net[2].parameters()") + TRAINED, id="a head alone is trained"),
        pytest.param(SEQUENTIAL + OPT + "net[2] = net[2]\n" + TRAINED, id="a layer is put where it was"),
        pytest.param(SEQUENTIAL + "net[2] = nn.Linear(3, 2)\n" + OPT + TRAINED, id="a layer is replaced ahead"),
        pytest.param(SEQUENTIAL + OPT + "old = net[2]\nnet[2] = nn.Linear(3, 2)\n" + TRAINED, id="what was replaced has a name"),
        pytest.param(SEQUENTIAL + "extra = nn.Linear(3, 3)\n" + OPT.replace("net.parameters()", "[*net.parameters(), *extra.parameters()]") + "del extra\n" + TRAINED, id="what is gone was of another model"),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert (seen.findings, seen.detached) == ((), ())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param(LISTED, "is no `nn.ModuleList`", id="layers in a list"),
        pytest.param(SEQUENTIAL + OPT + "net[2] = nn.Linear(3, 2)\n", "parameters that nothing has any more", id="a layer is replaced"),
        pytest.param(
            SEQUENTIAL + OPT + "net[0].weight = nn.Parameter(torch.zeros(3, 3))\n", "parameters that nothing has any more", id="a parameter is replaced"
        ),
    ],
)  # fmt: skip
def test_the_step_is_named_where(made: str, said: str) -> None:
    text = made + TRAINED
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    (found,) = seen.findings
    assert found.changed is not None and found.needed is not None
    assert (found.changed.text, found.needed.text) == ("opt.step()", "loss.backward()")
    assert said in found.sentence


def fix(*cells: str) -> tuple[str, dict[int, str]]:
    run = run_in(new_shell(), [START, *cells[:-1], f"%%autograd_check\n{cells[-1]}"])
    assert run.diagnosis is not None and run.diagnosis.fixes
    first = run.diagnosis.fixes[0]
    return first.title, {n: text.removeprefix("%%autograd_check\n") for n, text in first.cells.items()}


@pytest.mark.parametrize(
    ("layers", "each", "expected"),
    [
        pytest.param(
            "self.layers = [nn.Linear(3, 3) for _ in range(2)]", EACH, "self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])", id="a list"
        ),
        pytest.param(
            "self.layers = []; self.layers.append(nn.Linear(3, 3))", EACH, "self.layers = nn.ModuleList(); self.layers.append(nn.Linear(3, 3))", id="a list that is filled"
        ),
        pytest.param("self.layers = (nn.Linear(3, 3), nn.Tanh())", EACH, "self.layers = nn.ModuleList((nn.Linear(3, 3), nn.Tanh()))", id="a tuple"),
        pytest.param(
            "self.layers = {'a': nn.Linear(3, 3)}", "x = self.layers['a'](x)", "self.layers = nn.ModuleDict({'a': nn.Linear(3, 3)})", id="a dict"
        ),
        pytest.param(
            "layers = [nn.Linear(3, 3)]; self.layers = layers", EACH, "layers = [nn.Linear(3, 3)]; self.layers = nn.ModuleList(layers)", id="a list with a name of its own"
        ),
        pytest.param(
            "self.layers = list_of()", EACH, "self.layers = nn.ModuleList(list_of())", id="a list that a function gives"
        ),
        pytest.param(
            "self.layers = dict_of()", "x = self.layers['a'](x)", "self.layers = nn.ModuleDict(dict_of())", id="a dict that a function gives"
        ),
        pytest.param(
            "self.layers = [nn.Parameter(torch.ones(3))]", "x = x * self.layers[0]", "self.layers = nn.ParameterList([nn.Parameter(torch.ones(3))])", id="parameters"
        ),
    ],
)  # fmt: skip
def test_what_a_module_keeps_is_registered(layers: str, each: str, expected: str) -> None:
    given = "def list_of(): return [nn.Linear(3, 3)]\ndef dict_of(): return {'a': nn.Linear(3, 3)}"
    title, cells = fix(given, of_class(layers, each), TRAINED)
    assert cells == {3: of_class(expected, each).rstrip("\n")}
    assert title in expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(
            [SEQUENTIAL + OPT, "net[2] = nn.Linear(3, 2)", TRAINED], {4: (OPT + TRAINED).rstrip("\n")}, id="in the cell that steps, once more"
        ),
        pytest.param(
            [SEQUENTIAL, OPT + "net[2] = nn.Linear(3, 2)\n" + TRAINED],
            {3: ("net[2] = nn.Linear(3, 2)\n" + OPT + TRAINED).rstrip("\n")},
            id="behind what replaces them",
        ),
        pytest.param(
            [SEQUENTIAL, OPT + SCHEDULER + "net[2] = nn.Linear(3, 2)\n" + TRAINED],
            {3: ("net[2] = nn.Linear(3, 2)\n" + OPT + SCHEDULER + TRAINED).rstrip("\n")},
            id="behind what replaces them, with its scheduler",
        ),
        pytest.param(
            [SEQUENTIAL + OPT, SEQUENTIAL + TRAINED], {3: (SEQUENTIAL + OPT + TRAINED).rstrip("\n")}, id="for a model that is made anew"
        ),
    ],
)  # fmt: skip
def test_the_optimizer_is_made(cells: list[str], expected: dict[int, str]) -> None:
    assert fix(*cells)[1] == expected
