"""A fault of ours costs one line; the user's traceback, error and session stand."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.cells import run_cells, run_in

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)\nkept = [1, 2]"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"


class Fault(Exception):
    pass


def boom(*args: Any, **kwargs: Any) -> Any:
    raise Fault("a fault of ours,\nin two lines")


STAGES = [
    pytest.param("inplace_magic.pipeline", "diagnose", id="the pipeline"),
    pytest.param("inplace_magic.pipeline", "conflicts", id="the explanation"),
    pytest.param("inplace_magic.pipeline", "relevant", id="the choice of conflicts"),
    pytest.param("inplace_magic.show", "show", id="the display"),
    pytest.param("inplace_magic.report.text", "render", id="the report's text"),
    pytest.param("inplace_magic.rerun.sandbox", "closed", id="the door"),
    pytest.param("inplace_magic.rerun.sandbox", "run", id="the sandbox"),
]


@pytest.mark.parametrize(("module", "name"), STAGES)
def test_one_line_says_so_and_all_else_stands(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cells(SETUP)
    monkeypatch.setattr(importlib.import_module(module), name, boom)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError) and "modified by an inplace operation" in str(failed.error)
    ours = [line for line in failed.output.splitlines() if line.startswith("inplace_magic")]
    assert len(ours) == 1 and "Fault" in ours[0]
    assert run_in(done.shell, ["assert kept == [1, 2]\ny = 1"]).error is None
    monkeypatch.undo()
    assert "broke the backward pass" in run_in(done.shell, [BODY]).output


@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param("inplace_magic.rerun.replay", "_run", id="the replay"),
        pytest.param("inplace_magic.rerun.recorder", "Recorder.__enter__", id="the recorder"),
        pytest.param("inplace_magic.rerun.gradients", "digest", id="the gradients"),
    ],
)
def test_a_fault_inside_the_copy_leaves_the_report_without_a_rerun(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_cells(SETUP)
    owner: Any = importlib.import_module(module)
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, attribute, boom)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError)
    assert "broke the backward pass" in failed.output
    assert failed.diagnosis is not None and not any(fix.verified for fix in failed.diagnosis.fixes)


def test_a_rule_that_crashes_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from inplace_magic import fixes

    list(fixes.propose.__globals__["_RULES"])
    run_cells(SETUP, BODY)  # the rules are loaded

    @fixes.register("modified", rank=-1)
    def crashes(problem: Any) -> Any:
        raise Fault

    try:
        done = run_cells(SETUP, BODY)
        assert done.diagnosis is not None and done.diagnosis.fixes[0].title == "x = x + 1"
    finally:
        fixes._RULES[:] = [r for r in fixes._RULES if r.rule is not crashes]


def test_ctrl_c_while_we_work_is_not_an_error_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    import inplace_magic.rerun.sandbox as sandbox

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    done = run_cells(SETUP)
    monkeypatch.setattr(sandbox, "run", interrupted)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError)
    assert "stopped; nothing of yours was changed" in failed.output
