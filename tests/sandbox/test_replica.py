"""A replica has the session as autograd knows it, and the session does not notice."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from inplace_magic.sandbox import Policy, Sandbox
from inplace_magic.session.run_cell import Touched
from tests.cells import new_shell, run_in
from tests.sandboxes import needs_replica

pytestmark = needs_replica


class Probe:
    """Runs a text in the session's namespace, wherever that is, and answers with the value of ``answer``."""

    def __init__(self, text: str, fresh: bool = False) -> None:
        self.text, self.fresh = textwrap.dedent(text), fresh

    def __call__(self, shell: Any, tell: Any = None) -> Any:
        exec(compile(self.text, "<ipython-input-9-probe>", "exec"), shell.user_ns)
        return shell.user_ns["answer"]

    def touched(self, shell: Any) -> Touched:
        return Touched((compile(self.text, "<probe>", "exec"),), frozenset({"everything"} if self.fresh else ()))


def session(*cells: str) -> Any:
    shell = new_shell()
    done = run_in(shell, [textwrap.dedent(cell).strip("\n") for cell in cells])
    assert done.error is None, done.output
    return shell


def answers(shell: Any, *texts: str) -> list[Any]:
    """What a replica of the session answers to each text; a clause where it could not."""
    with Sandbox(shell, Policy("replica")) as sandbox:
        outcomes = [sandbox.run(Probe(text), 60) for text in texts]
    return [outcome.value if outcome.failure is None else outcome.failure for outcome in outcomes]


MODELS = """
    import torch, torch.nn as nn, random
    torch.manual_seed(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.register_buffer("seen", torch.zeros(4))
            self.window = self.seen[1:3]
        def forward(self, x):
            return self.b(torch.relu(self.a(x)))
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    plan = torch.optim.lr_scheduler.StepLR(opt, 1)
    weight = net.a.weight
    calls = []
    hook = net.a.register_forward_hook(lambda module, args, out: calls.append(1))
    net(torch.ones(2, 3)).sum().backward()
    opt.step(); plan.step()
"""


def test_nothing_of_the_session_changes() -> None:
    shell = session(
        MODELS,
        """
        class Counting:
            pickled = 0
            def __getstate__(self):
                Counting.pickled += 1
                return {}
        counting = Counting()
        before = [p._version for p in net.parameters()], random.getstate(), torch.get_rng_state()
        """,
    )
    (answer,) = answers(shell, "counting, net; weight.data.zero_(); torch.rand(3); random.random(); answer = 1")
    assert answer == 1
    check = """
        assert Counting.pickled == 0 and weight.abs().sum() > 0
        assert before[0] == [p._version for p in net.parameters()]
        assert before[1] == random.getstate() and torch.equal(before[2], torch.get_rng_state())
    """
    assert run_in(shell, [textwrap.dedent(check)]).error is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("weight is net.a.weight and weight is net.b.weight", id="names and modules share their objects"),
        pytest.param("any(p is weight for p in opt.param_groups[0]['params'])", id="an optimizer has the parameters"),
        pytest.param("opt.state[weight]['step'].item() == 1", id="an optimizer has its state"),
        pytest.param("plan.optimizer is opt and opt.param_groups[0]['lr'] < 0.1", id="a scheduler has its optimizer"),
        pytest.param("weight.is_leaf and isinstance(weight, nn.Parameter)", id="a parameter is a leaf"),
        pytest.param("weight.grad is not None and weight.grad.abs().sum() > 0", id="a leaf has its gradient"),
        pytest.param("net.seen.add_(1) is not None and net.window._version == 1", id="a view counts with its base"),
        pytest.param("net(torch.ones(1, 3)) is not None and len(calls) == 2", id="a hook is called, with its own list"),
    ],
)
def test_objects_are_as_autograd_knows_them(answer: str) -> None:
    assert answers(session(MODELS), f"net, opt, plan, weight, calls; answer = bool({answer})") == [True]


def test_random_numbers_continue_where_the_session_is() -> None:
    shell = session("import torch, random; torch.manual_seed(3); random.seed(3); random.random()")
    text = "answer = torch.rand(2).tolist(), random.random()"
    (seen,) = answers(shell, f"import torch, random; {text}")
    exec(text, shell.user_ns)
    assert seen == shell.user_ns["answer"]


def test_a_graph_is_left_behind_and_what_needs_it_says_so() -> None:
    shell = session("import torch\nw = torch.ones(2, requires_grad=True)\nh = w.exp()")
    read, through = answers(shell, "answer = (h.detach() + 1).tolist()", "(h * 2).sum().backward(); answer = 'it ran'")
    assert read == pytest.approx([3.718281, 3.718281])
    assert "the graph of a tensor from an earlier cell" in through


def test_what_cannot_be_taken_along_is_named_if_it_is_used() -> None:
    shell = session(
        "import torch\nstream = (k for k in range(9)); lines = open('/dev/null')",
        "def draw():\n    return next(stream)",
    )
    unused, used, called = answers(
        shell, "kept = [stream]; answer = len(kept)", "answer = next(stream)", "answer = draw()"
    )
    assert unused == 1
    assert "`stream`" in used and "generator" in used
    assert "`stream`" in called
    assert next(shell.user_ns["stream"]) == 0
    shell.user_ns["lines"].close()


def test_code_keeps_the_name_of_its_cell() -> None:
    shell = session(
        "def f():\n    return [k for k in ()]",
        "class A:\n    def m(self):\n        def inner(): pass\n        return inner\na = A()",
    )
    text = "answer = [c.__code__.co_filename for c in (f, a.m, a.m())]"
    (seen,) = answers(shell, f"f, a; {text}")
    exec(text, shell.user_ns)
    assert seen == shell.user_ns["answer"] and all(name.startswith("<ipython-input-") for name in seen)


def test_an_instance_of_a_class_that_was_defined_again_keeps_its_own() -> None:
    shell = session("class A:\n    def f(self): return 1", "a = A()", "class A:\n    def f(self): return 2\nb = A()")
    assert answers(shell, "answer = a.f(), b.f(), type(b) is A, type(a) is A") == [(1, 2, True, False)]


def test_a_large_tensor_is_not_held_twice(tmp_path: Path) -> None:
    shell = session("import torch\nbig = torch.ones(30_000_000)")
    text = "import resource; big[0] = 2; answer = big[:2].tolist(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
    ((values, resident),) = answers(shell, text)
    assert values == [2, 1] and shell.user_ns["big"][0] == 1
    assert resident < 1_200_000  # kB: torch, and not the tensor beside it


def test_what_a_replica_would_have_to_copy_counts_as_its_own() -> None:
    shell = session("import torch\nbig = torch.ones(2**26)")
    text = "big; from inplace_magic.sandbox import process_memory; answer = process_memory.{}()"
    with_it, without = answers(shell, text.format("own_bytes"), text.format("own_bytes").replace("big; ", ""))
    assert with_it - without > 2**28 - 2**24


def test_work_without_end_is_ended() -> None:
    shell = session("import time")
    with Sandbox(shell, Policy("replica")) as sandbox:
        outcome = sandbox.run(Probe("while True: pass", fresh=True), 0.3)
    assert outcome.timed_out


def test_a_replica_ends_with_its_sandbox() -> None:
    shell = session("import os")
    with Sandbox(shell, Policy("replica")) as sandbox:
        pid = sandbox.run(Probe("import os; answer = os.getppid()", fresh=True), 60).value
        assert isinstance(pid, int) and os.path.exists(f"/proc/{pid}")
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
