"""Private calls of torch are in one place, and none of them is needed for a report."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import inplace_magic
from inplace_magic import torch_private

from .cells import run_cells

PACKAGE = Path(inplace_magic.__file__).parent
FAILS = """
    import torch
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    y += 1
    y.sum().backward()
"""
GONE = [
    pytest.param(torch._C, "DisableTorchFunction", id="switching function modes off"),
    pytest.param(torch._C, "_current_autograd_node", id="the node that runs"),
    pytest.param(torch.autograd, "_get_sequence_nr", id="the number of the next node"),
    pytest.param(torch._C._autograd, "_top_saved_tensors_default_hooks", id="the innermost hooks on saved tensors"),
    pytest.param(torch._C._autograd, "_unsafe_set_version_counter", id="setting a version back"),
    pytest.param(torch.autograd.function, "_SingleLevelFunction", id="what applying a Function goes on to"),
    pytest.param(torch_private, "ENGINE_CODE", id="the frame that calls the engine"),
    pytest.param(torch_private, "FUNCTION_BACKWARD_CODE", id="the frame that calls a Function's backward"),
]


def test_private_names_of_torch_are_in_one_file() -> None:
    private = re.compile(r"torch(\.\w+)*\._(?!_)")
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        chains = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
        imports = [f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) and n.module for a in n.names]
        names = [name for name in (*chains, *imports) if private.match(name)]
        names += [name for name in chains if name.rpartition(".")[2] in ("_version", "_cdata", "_sequence_nr", "_base")]
        if names and path.name != "torch_private.py":
            found[str(path.relative_to(PACKAGE))] = names
    assert found == {}


@pytest.mark.parametrize(("owner", "name"), GONE)
def test_a_release_without_a_private_name_still_gets_its_report(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(owner, type(torch_private)) and owner is torch_private:
        monkeypatch.setattr(owner, name, None)
    else:
        monkeypatch.delattr(owner, name, raising=False)
    run = run_cells(FAILS)
    assert isinstance(run.error, RuntimeError) and "modified by an inplace operation" in str(run.error)
    assert run.diagnosis is not None and run.diagnosis.changed is not None and run.diagnosis.needed is not None
    assert (run.diagnosis.changed.line, run.diagnosis.needed.line) == (4, 5)
    assert any(fix.verified for fix in run.diagnosis.fixes)


def test_a_version_that_cannot_be_read_is_none() -> None:
    with torch.inference_mode():
        assert torch_private.version_of(torch.ones(1)) == -1


@pytest.mark.skipif(not torch_private.SAVED_TENSORS_TELL, reason="this torch's saved tensors do not tell")
def test_what_a_node_saved_is_looked_at_without_unpacking_it() -> None:
    y = torch.ones(2, requires_grad=True).exp()
    assert y.grad_fn is not None
    ((raw, unpack),) = torch_private.saved_values(y.grad_fn)
    assert raw.data is not None and unpack() is not None
    y.sum().backward()
    assert list(torch_private.saved_values(y.grad_fn)) == [] or raw.data is None
