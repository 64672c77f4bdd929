"""A copy of the process is trusted with a backward only where it can run one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from inplace_magic.sandbox import Policy, Sandbox, fork, may_fork
from tests.cells import new_shell, run_in
from tests.sandboxes import needs_fork, needs_replica

FAILS = "import torch\nw = torch.ones(3, requires_grad=True)\nh = w.exp()\nh += 1\nh.sum().backward()"


@needs_fork
def test_without_an_accelerator_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(may_fork, "backward_runs_in_a_copy", lambda *devices: pytest.fail("tried"))
    assert may_fork.why_not() is None


@needs_fork
def test_a_copy_that_is_refused_its_backward_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_fork.backward_runs_in_a_copy()
    monkeypatch.setattr(may_fork, "accelerator", lambda: "cuda")
    monkeypatch.setattr(may_fork, "backward_runs_in_a_copy", lambda *devices: False)
    assert "cuda" in (may_fork.why_not() or "")
    assert not Sandbox(None).is_copy


@needs_replica
@needs_fork
def test_a_replica_takes_over_where_torch_refuses_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Any = fork.Child.outcome

    def refused(*args: Any) -> Any:
        plain(*args)
        return fork.Outcome(
            failure="RuntimeError: Unable to handle autograd's threading in combination with fork-based multiprocessing"
        )

    monkeypatch.setattr(fork.Child, "outcome", refused)
    monkeypatch.setattr("inplace_magic.sandbox.replica.place.ReplicaPlace._parcel", lambda *args: None)
    done = run_in(new_shell(), [FAILS])
    assert done.diagnosis is not None and done.diagnosis.changed is not None and done.diagnosis.changed.line == 4


def test_the_old_name_of_the_option_works_and_says_so() -> None:
    done = run_in(new_shell(), ["%config InplaceMagic.room = 'copy'", "%config InplaceMagic"])
    assert "`room` is now called `sandbox`" in done.output and "'fork'" in done.output


def test_asking_for_a_sandbox_imports_no_torch() -> None:
    code = "import sys, inplace_magic.sandbox.may_fork as m; m.accelerator(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_policy_without_a_place_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(may_fork, "why_not", lambda: "this system cannot fork a process")
    assert Sandbox(None, Policy("fork")).closed() == "this system cannot fork a process"
    assert Sandbox(None, Policy("auto")).closed() is None
