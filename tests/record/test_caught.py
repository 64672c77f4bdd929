"""What the program catches itself: it is raised while the run is recorded as well, so that nothing comes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from inplace_magic.record.caught import Caught
from inplace_magic.source.document import CellSource
from inplace_magic.source.location import SourceRange
from inplace_magic.source.sources import Sources

from ..cells import run_cells
from .test_recorder import plain, run

LEAF = "c = torch.ones(3, requires_grad=True)\nsaid = []\n"
CAUGHT = [
    pytest.param("try:\n    c.add_(1)\nexcept RuntimeError:\n    said.append(1)", id="by its own kind"),
    pytest.param(
        "import contextlib\nwith contextlib.suppress(ValueError, RuntimeError):\n    said.append(1)\n    c.add_(1)",
        id="by contextlib.suppress",
    ),
    pytest.param("try:\n    c.add_(1)\nexcept:\n    said.append(1)", id="by a bare handler"),
    pytest.param(
        "try:\n    c.add_(1)\nexcept (ValueError, Exception) as e:\n    said.append(str(e))", id="by one of several"
    ),
    pytest.param(
        "def attempt(op):\n    try:\n        op()\n    except RuntimeError:\n        said.append(1)\nattempt(lambda: c.add_(1))",
        id="by a caller",
    ),
    pytest.param(
        "def init(p):\n    try:\n        p.fill_(1)\n    except RuntimeError:\n        raise\n"
        "for p in [c, c]:\n    try:\n        init(p)\n    except Exception:\n        said.append(p.sum().item())",
        id="by the outer one of two handlers",
    ),
    pytest.param(
        "for row in (c * 2):\n    try:\n        row.mul_(2)\n    except RuntimeError:\n        said.append(row.sum().item())",
        id="one of several views",
    ),
    pytest.param(
        "x = c.detach().expand(2, 3)\ntry:\n    x.add_(1)\nexcept RuntimeError:\n    said.append(x.sum().item())",
        id="elements that share memory",
    ),
    pytest.param(
        "with torch.inference_mode():\n    i = torch.ones(3)\ntry:\n    i.add_(1)\nexcept RuntimeError:\n    said.append(i.sum().item())",
        id="a write that torch makes before it refuses it",
    ),
    pytest.param(
        "with torch.inference_mode():\n    i = torch.ones(3)\ntry:\n    p = torch.nn.Parameter(i)\nexcept RuntimeError:\n    said.append(1)",
        id="a parameter of an inference tensor",
    ),
]


@pytest.mark.parametrize("text", CAUGHT)
@pytest.mark.parametrize("update_leaves", [True, False])
def test_what_the_program_catches_is_raised_and_noted_nowhere(text: str, update_leaves: bool) -> None:
    recorder, watched = run(LEAF + text, update_leaves=update_leaves)
    alone = plain(LEAF + text)
    assert recorder.conflicts.found == []
    assert watched["said"] == alone["said"] != []
    for name in ("c", "x", "i"):
        assert torch.equal(watched.get(name, torch.ones(1)), alone.get(name, torch.ones(1)))


TRIED = "try:\n    loss.backward()\nexcept RuntimeError as error:\n    said.append(str(error))\n"
BACKWARDS = [
    pytest.param("w = c * 1\nloss = (c * w).sum()\nw.add_(1)\n", id="of a value that was written"),
    pytest.param("loss = c.exp().sum()\nloss.backward()\n", id="of a graph that was freed"),
    pytest.param(
        "a = c.exp()\nloss = (a * c.tanh()).sum() + c.sum()\na.add_(1)\n", id="which has reached some of the leaves"
    ),
]


def _in_short(said: str) -> str:
    """Less the node, which is not known behind it, and the hint, which is another one in torch 2.6."""
    return re.sub(r", which is output \d of \w+,", "", said).partition(" Hint: ")[0]


@pytest.mark.parametrize("text", BACKWARDS)
@pytest.mark.parametrize("keep_graphs", [True, False])
def test_a_backward_that_the_program_catches_ends_where_torch_ends_it(text: str, keep_graphs: bool) -> None:
    text = LEAF + text + TRIED
    recorder, watched = run(text, keep_graphs=keep_graphs)
    alone = plain(text)
    assert recorder.conflicts.found == []
    assert [_in_short(said) for said in watched["said"]] == [_in_short(said) for said in alone["said"]] != []
    gradients = [namespace["c"].grad for namespace in (watched, alone)]
    assert (gradients[0] is None and gradients[1] is None) or torch.equal(*gradients)


def test_another_failure_behind_a_backward_that_was_caught_gets_its_fix() -> None:
    start = (
        "import torch\n"
        + LEAF
        + "h = c.sigmoid()\nh.mul_(2)\nloss = h.sum()\n"
        + TRIED.replace("(error)", "(error)[:60]")
    )
    found = run_cells(start, "y = c.tanh()\ny.add_(1)\ny.sum().backward()").diagnosis
    assert found is not None and [clash.changed and clash.changed.cell for clash in found.conflicts] == [2]
    assert (found.fixes[0].rule, found.fixes[0].gradients) == ("out_of_place", "same")
    assert [*found.fixes[0].cells] == [2]


NOT_CAUGHT = [
    pytest.param("try:\n    c.add_(1)\nexcept ValueError:\n    pass", id="another kind"),
    pytest.param("try:\n    c.add_(1)\nexcept RuntimeError:\n    said.append(1)\n    raise", id="raised again"),
    pytest.param("try:\n    pass\nexcept RuntimeError:\n    pass\nelse:\n    c.add_(1)", id="behind what is tried"),
    pytest.param("try:\n    1 / 0\nexcept Exception:\n    c.add_(1)", id="in the handler itself"),
    pytest.param(
        "try:\n    def init():\n        c.add_(1)\nexcept RuntimeError:\n    pass\ninit()", id="only defined there"
    ),
    pytest.param("try:\n    c.add_(1)\nfinally:\n    said.append(1)", id="without a handler"),
    pytest.param(
        "import contextlib\nwith contextlib.suppress(ValueError):\n    c.add_(1)", id="another kind than is suppressed"
    ),
]


@pytest.mark.parametrize("text", NOT_CAUGHT)
def test_what_ends_the_program_is_carried_out(text: str) -> None:
    recorder, _ = run(LEAF + text)
    assert [clash.family for clash in recorder.conflicts.found] == ["leaf"]
    with pytest.raises(RuntimeError, match="leaf"):
        plain(LEAF + text)


def test_the_failure_itself_was_not_caught_whatever_its_handler_does() -> None:
    text = "try:\n    c.add_(1)\nexcept RuntimeError:\n    end()"
    stack = (SourceRange(1, "In[1]", "<module>", 2),)
    known: dict[str, Any] = {"sources": Sources({1: CellSource(1, text)}, {}, 1)}
    assert Caught(**known, raised=()).at(RuntimeError(), stack)
    assert not Caught(**known, raised=stack).at(RuntimeError(), stack)


def test_a_fix_is_compared_with_values_that_the_program_had() -> None:
    found = run_cells(
        "import torch\n" + LEAF + "try:\n    c.mul_(2)\nexcept RuntimeError:\n    print('no')", "c[0] = 5\nprint(c)"
    ).diagnosis
    assert found is not None and len({clash.needed for clash in found.conflicts}) == 1
    assert (found.fixes[0].rule, found.fixes[0].gradients, found.fixes[0].changes) == ("no_grad", "same", ())
