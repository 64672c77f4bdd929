from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inplace_magic
from inplace_magic import torch_private
from inplace_magic.watch import Check

from .cells import Run, run_cells

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = {
    "torch": torch,
    "F": F,
    "nn": nn,
    "numpy": numpy,
    "inf": float("inf"),
    "threading": threading,
    "ctypes": ctypes,
}


def watch(code: str, **options: object) -> Check:
    """Runs some code under a watch. Its file counts as the user's own."""
    text = textwrap.dedent(code)
    compiled = compile(text, "/home/somebody/train.py", "exec")
    torch.manual_seed(3)
    with inplace_magic.check(**options) as seen:  # type: ignore[arg-type]
        exec(compiled, {**NAMES, "x": torch.randn(6, requires_grad=True), "w": torch.randn(3, 3, requires_grad=True)})
    return seen


def changed_at(code: str) -> int | None:
    """The line that is told to have written, or 0 where nothing is found."""
    seen = watch(code)
    if not seen.findings:
        return 0
    return seen.findings[0].changed.line if seen.findings[0].changed is not None else None


QUIET = {
    "a write to another stretch of the same memory": """
        base = x + 0
        loss = base[:3].exp().sum() + (base[:3] ** 2).sum()
        base.data[3:] = 7
        loss.backward()
    """,
    "a write of the very same values": """
        loss = (x ** 2).sum()
        x.data.copy_(x.detach().clone())
        loss.backward()
    """,
    "nan that stays nan": """
        x.data[0] = float("nan")
        loss = (x ** 2).sum()
        x.data.mul_(1.0)
        loss.backward()
    """,
    "a value that was saved by a graph which never goes backward": """
        unused, loss = (x ** 2).sum(), x.sum()
        x.data.mul_(2)
        loss.backward()
    """,
    "an eval forward whose graph is not used": """
        norm = nn.BatchNorm1d(3)
        norm.eval()(torch.randn(4, 3))
        norm.train()(torch.randn(4, 3)).square().sum().backward()
    """,
    "an update after the backward": """
        (x ** 2).sum().backward()
        x.data.sub_(x.grad)
    """,
    ".data that is only read": """
        loss = (x ** 2).sum()
        x.data.max(), x.data.numpy().sum(), x.detach().norm()
        loss.backward()
    """,
    "losses added up for the log in the first one's memory": """
        total = None
        for _ in range(3):
            loss = (x * torch.randn(6)).square().mean()
            total = loss.detach() if total is None else total.add_(loss.detach())
            (loss / 2).backward()
    """,
    "a log that is cleared before the backward, and then read": """
        h = torch.randn(2, 3) @ w
        log, loss = h.detach(), h.sum()
        log.zero_()
        print(h.mean().item())
        loss.backward()
    """,
    "a mask of -inf ahead of a softmax": """
        scores = torch.randn(2, 3) @ w
        scores.data.masked_fill_(torch.tensor([True, False, False]), -inf)
        scores.softmax(-1)[:, 1].sum().backward()
    """,
    "noise": """
        h = torch.randn(2, 3) @ w
        h.data.add_(torch.randn(2, 3))
        h.square().sum().backward()
    """,
    "a straight-through rounding": """
        h = torch.randn(2, 3) @ w
        h.data.round_()
        h.square().sum().backward()
    """,
    "a straight-through rounding under no_grad": """
        h = torch.randn(2, 3) @ w
        with torch.no_grad():
            h.round_()
        h.square().sum().backward()
    """,
    "a quantiser with the identity's gradient": """
        q = w.clone()
        with torch.no_grad():
            q.div_(0.1).round_().mul_(0.1)
        (torch.randn(2, 3) @ q).square().sum().backward()
    """,
    "a straight-through choice": """
        soft = (torch.randn(2, 3) @ w).softmax(-1)
        hard = soft.clone()
        with torch.no_grad():
            hard.zero_()
            hard[:, 0] = 1
        hard.square().sum().backward()
    """,
    "a picture that is clamped to be shown": """
        h = torch.randn(2, 3) @ w
        loss = h.sum()
        with torch.no_grad():
            print(h.clamp_(0, 1).mean().item())
        loss.backward()
    """,
    "noise under no_grad": """
        h = torch.randn(2, 3) @ w
        with torch.no_grad():
            h += torch.randn(2, 3)
        h.square().sum().backward()
    """,
    "a mask of -inf under no_grad ahead of a softmax": """
        scores = torch.randn(2, 3) @ w
        with torch.no_grad():
            scores.masked_fill_(torch.tensor([True, False, False]), -inf)
        scores.softmax(-1)[:, 1].sum().backward()
    """,
    "a straight-through sign by another .data": """
        h = torch.randn(2, 3) @ w
        h.data = h.data.sign()
        h.square().sum().backward()
    """,
    "relu reads the sign of what it saved": """
        h = F.relu(x)
        loss = h.sum()
        h.data.mul_(3)
        loss.backward()
    """,
    "pooling reads the shape of what it saved": """
        image = torch.randn(1, 1, 4, 4, requires_grad=True)
        h = image * 2
        loss = F.avg_pool2d(h, 2).sum() + F.max_pool2d(h, 2).sum()
        h.data.zero_()
        loss.backward()
    """,
    "a convolution of data does not read its weight": """
        conv = nn.Conv1d(1, 1, 2)
        first, second = (conv(torch.randn(1, 1, 5)).square().mean() for _ in range(2))
        first.backward()
        for p in conv.parameters():
            p.data -= 0.1 * p.grad
        second.detach()
        conv.zero_grad()
        conv(torch.randn(1, 1, 5)).sum().backward()
    """,
    "a weight that is saved by a layer which nothing asks for a gradient through": """
        conv = nn.Conv1d(1, 1, 2)
        loss = conv(torch.randn(1, 1, 5)).sum()
        conv.weight.data.mul_(2)
        loss.backward()
    """,
    "memory that is used again for another tensor": """
        for _ in range(30):
            y = torch.randn(100, requires_grad=True)
            loss = (y ** 2).sum()
            h = loss.detach()
            loss.backward()
            del loss
            y.data.zero_()
            h.mul_(3)
            del y, h
    """,
    "memory that is used again after a write past its graph": """
        y = torch.randn(50, requires_grad=True)
        for _ in range(30):
            h = y * 2
            d = h.detach()
            d.mul_(0)
            del h, d
            k = y * 3
            (k * k).sum().backward()
            del k
    """,
    "legal in-place work on views": """
        y = x.clone()
        y[0].neg_()
        y[:2].mul_(2)
        y[3] += 1
        y.tanh_().sum().backward()
    """,
    "weights swapped and put back": """
        loss = (x ** 2).sum()
        kept = x.data
        x.data = torch.zeros(6)
        x.data = kept
        loss.backward()
    """,
    "a result swapped of which its node has kept the old memory": """
        y = x.exp()
        y.data = torch.zeros(6)
        y.sum().backward()
    """,
    "weights swapped for their own copy": """
        loss = (x ** 2).sum()
        x.data = x.data.clone()
        loss.backward()
    """,
    "a numpy buffer refilled after its backward": """
        buffer = numpy.ones(6, dtype=numpy.float32)
        batch = torch.from_numpy(buffer)
        for i in range(3):
            (x * batch).sum().backward()
            buffer[:] = i
    """,
    "another part of a numpy buffer": """
        buffer = numpy.ones(12, dtype=numpy.float32)
        loss = (x * torch.from_numpy(buffer)[:6]).sum()
        buffer[6:] = 5
        loss.backward()
    """,
    "sparse, complex and nested tensors": """
        sparse = torch.eye(3).to_sparse()
        torch.sparse.mm(sparse, w).square().sum().backward()
        (torch.eye(3).to_sparse_csr() @ w).square().sum().backward()
        z = torch.randn(3, dtype=torch.cfloat, requires_grad=True)
        y = z * z
        y.detach().numpy().sum()
        (y * y.conj()).real.sum().backward()
        ragged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)], layout=torch.jagged)
        (ragged.requires_grad_() * 2).values().square().sum().backward()
    """,
    "torch.func, which refuses to run under hooks": """
        torch.func.grad(lambda t: (t ** 2).sum())(torch.randn(3))
        torch.func.vmap(torch.func.jacrev(lambda t: t ** 3))(torch.randn(2, 3))
        torch.func.jvp(lambda t: t ** 2, (torch.randn(3),), (torch.ones(3),))
        torch.autograd.functional.hessian(lambda t: (t ** 3).sum(), torch.randn(3))
        x.exp().sum().backward()
    """,
    "hooks of others": """
        with torch.autograd.graph.save_on_cpu():
            loss = x.exp().square().sum()
        loss.backward()
        y = x.exp()
        y.grad_fn.register_hook(lambda *gradients: None)
        y.sum().backward()
    """,
    "inference mode, forward mode and anomaly mode": """
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
        with torch.inference_mode():
            net(torch.randn(2, 3))
        with torch.autograd.forward_ad.dual_level():
            torch.autograd.forward_ad.make_dual(torch.randn(3), torch.ones(3)).exp()
        with torch.autograd.set_detect_anomaly(True):
            net(torch.randn(2, 3)).sum().backward()
    """,
    "threads of their own": """
        def work():
            y = torch.randn(3, requires_grad=True)
            (y ** 2).sum().backward()
            y.data.zero_()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        work()
    """,
    "a custom Function that changes a buffer of its own in backward": """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.seen = torch.zeros_like(t)
                return t * 2
            @staticmethod
            def backward(ctx, g):
                ctx.seen.add_(g)
                return g * 2
        loss = Twice.apply(x).sum()
        loss.backward(retain_graph=True)
        torch.autograd.backward(loss)
    """,
    "a custom Function whose running statistic backward does not read": """
        class Track(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, statistic):
                statistic.mul_(0.9).add_(t.mean())
                ctx.statistic = statistic
                return t * 2
            @staticmethod
            def backward(ctx, g):
                return g * 2, None
        statistic = torch.zeros(1)
        (Track.apply(x, statistic) + Track.apply(x, statistic)).sum().backward()
    """,
    "a scratch tensor within a custom Function": """
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                scratch = t.clone().mul_(2)
                out = torch.empty_like(t)
                torch.exp(t, out=out)
                scratch.zero_()
                ctx.save_for_backward(out)
                return out
            @staticmethod
            def backward(ctx, g):
                return g * ctx.saved_tensors[0]
        Exp.apply(x).sum().backward()
    """,
    "lazy modules and scripted ones": """
        nn.LazyLinear(3)(torch.randn(2, 2)).sum().backward()
        torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))(torch.randn(2, 3)).sum().backward()
    """,
    "a state dict loaded and weights from a vector after each backward": """
        net = nn.Linear(3, 1)
        state = {name: value.clone() for name, value in net.state_dict().items()}
        for assign in (False, True, False):
            net(torch.randn(2, 3)).square().sum().backward()
            net.load_state_dict(state, assign=assign)
            nn.utils.vector_to_parameters(torch.ones(4), net.parameters())
    """,
    "values that are detached, of parameters that learn otherwise, later, by hand or not at all": """
        body, head, value, target = (nn.Linear(3, 3) for _ in range(4))
        frozen = nn.Linear(3, 3).requires_grad_(False)
        optimizer = torch.optim.SGD([p for net in (body, head, value, target) for p in net.parameters()], 0.1)
        apart = torch.optim.SGD(head.parameters(), 0.1)
        other = nn.Linear(3, 3)
        for i in range(3):
            h = body(torch.randn(2, 3))
            wanted = target(h.detach()).detach() + frozen(h).detach() + other(h).detach()
            advantage = (h.sum() - value(h.detach()).sum()).detach()
            loss = (head(h) - wanted).square().sum() * advantage + value(h.detach()).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(target.parameters(), body.parameters()):
                    p.mul_(0.9).add_(q, alpha=0.1)
            apart.zero_grad()
            head(body(torch.randn(2, 3)).detach()).square().sum().backward()
            apart.step()
    """,
    "a gradient scaler, an averaged model, pruning": """
        net = nn.Linear(3, 3)
        import torch.nn.utils.prune
        nn.utils.prune.l1_unstructured(net, "weight", 0.3)
        optimizer, average = torch.optim.SGD(net.parameters(), 0.1), torch.optim.swa_utils.AveragedModel(nn.Linear(3, 3))
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(net(torch.randn(2, 3)).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    """,
    "what a module with backward hooks gave, written and never read again": """
        net = nn.Linear(3, 3)
        net.register_full_backward_hook(lambda module, given, handed: None)
        out = net(torch.randn(2, 3) * 1)
        loss = out.sum()
        for alias in (out.detach(), out.detach):
            (alias if isinstance(alias, torch.Tensor) else alias()).add_(1)
        loss.backward()
    """,
    "what a reentrant checkpoint gave, added to": """
        out = torch.utils.checkpoint.checkpoint(lambda t: (t @ w).tanh(), torch.randn(2, 3, requires_grad=True), use_reentrant=True)
        out += 1
        out.square().sum().backward()
    """,
    "what a reentrant checkpoint gave, written from C, where nothing reads it": """
        out = torch.utils.checkpoint.checkpoint(lambda t: (t @ w).tanh(), torch.randn(2, 3, requires_grad=True), use_reentrant=True)
        loss = out.sum()
        ctypes.memset(out.data_ptr(), 0, 4)
        loss.backward()
    """,
}


# A backward that reads less than it kept: only running it a second time tells.
READS_LESS = {
    "relu reads the sign of what it saved", "pooling reads the shape of what it saved",
    "a weight that is saved by a layer which nothing asks for a gradient through",
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in READS_LESS and not torch_private.SAVED_TENSORS_TELL:
        pytest.skip("this torch's saved tensors do not tell")
    code = QUIET[name]
    seen = watch(code)
    assert (seen.problem, [finding.sentence for finding in seen.findings]) == (None, [])


WRONG = {
    "a write through .data": ("""
        loss = (x ** 2).sum()
        x.data.add_(1)
        loss.backward()
    """, 3),
    "nan written": ("""
        loss = (x ** 2).sum()
        x.data.fill_(float("nan"))
        loss.backward()
    """, 3),
    "autograd.grad instead of backward": ("""
        loss = (x ** 2).sum()
        x.data.fill_(2)
        torch.autograd.grad(loss, x)
    """, 3),
    "the second of two derivatives": ("""
        (g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
        x.data.fill_(2)
        g.sum().backward()
    """, 3),
    "an array for a plot": ("""
        h = x.sigmoid()
        percent = h.detach().numpy()
        percent *= 100
        h.sum().backward()
    """, 4),
    "an array that was there before": ("""
        buffer = numpy.ones(6, dtype=numpy.float32)
        loss = (x * torch.from_numpy(buffer)).sum()
        buffer[:] = 5
        loss.backward()
    """, 4),
    "an array written in a function": ("""
        def fill(array, value):
            array = array[::1]
            array[2:] = value
            return array
        buffer = numpy.ones(6, dtype=numpy.float32)
        loss = (x * torch.from_numpy(buffer)).sum()
        result = [fill(buffer, v) for v in (1, 4)]
        loss.backward()
    """, 4),
    "an array written in the caller's line, once a function has given the value": ("""
        def value():
            one = 5
            return one
        buffer = numpy.ones(6, dtype=numpy.float32)
        loss = (x * torch.from_numpy(buffer)).sum()
        buffer[:] = value()
        loss.backward()
    """, 7),
    "an array written in a loop": ("""
        buffer = numpy.ones(6, dtype=numpy.float32)
        loss = (x * torch.from_numpy(buffer)).sum()
        for i in range(6):
            if i > 3:
                buffer[i] = 7
        loss.backward()
    """, 6),
    "dlpack": ("""
        t = torch.ones(6)
        other = torch.utils.dlpack.from_dlpack(t)
        loss = (x * t).sum()
        other.zero_()
        loss.backward()
    """, 5),
    "a storage": ("""
        loss = (x ** 2).sum()
        x.untyped_storage().fill_(0)
        loss.backward()
    """, 3),
    "a fused step between forward and backward": ("""
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, fused=True)
        loss = net(torch.randn(2, 3, requires_grad=True)).square().sum()
        net(torch.randn(2, 3)).sum().backward()
        optimizer.step()
        loss.backward()
    """, 6),
    "batch norm: eval, train, backward of the first": ("""
        norm = nn.BatchNorm1d(3)
        loss = norm.eval()(torch.randn(4, 3, requires_grad=True)).square().sum()
        norm.train()(torch.randn(4, 3) + 3)
        loss.backward()
    """, 4),
    "a clamp that the graph never hears of": ("""
        h = torch.randn(2, 3) @ w
        h.detach().clamp_(min=0)
        (h - 1).square().sum().backward()
    """, 3),
    "a part zeroed past the graph": ("""
        h = torch.randn(2, 3) @ w
        h.data[:, 0] = 0
        (h - 1).square().sum().backward()
    """, 3),
    "other .data": ("""
        loss = (x ** 2).sum()
        x.data = torch.zeros(6)
        loss.backward()
    """, 3),
    "weights from a vector": ("""
        conv = nn.Conv1d(1, 1, 1)
        loss = conv(torch.randn(1, 1, 3, requires_grad=True)).square().sum()
        nn.utils.vector_to_parameters(torch.ones(2) * 3, conv.parameters())
        loss.backward()
    """, 4),
    "relu's output zeroed": ("""
        h = F.relu(x.abs())
        loss = h.sum()
        h.data.zero_()
        loss.backward()
    """, 4),
    "a tensor kept on ctx": ("""
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.t = t
                return t * t
            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.t * g
        h = x + 0
        y = Square.apply(h)
        h += 10
        y.sum().backward()
    """, 12),
    "an input that a custom Function overwrites, read besides its result": ("""
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                t.mul_(2)
                return t.clone()
            @staticmethod
            def backward(ctx, g):
                return g * 2
        h = x + 0
        (Twice.apply(h) + h.relu()).sum().backward()
    """, 5),
}  # fmt: skip


@pytest.mark.parametrize(("code", "line"), WRONG.values(), ids=WRONG)
def test_the_line_that_wrote_is_found(code: str, line: int) -> None:
    assert changed_at(code) == line


@pytest.mark.parametrize("make", ["h", "h.detach().numpy()"])
def test_a_watch_changes_no_gradient(make: str) -> None:
    def step() -> torch.Tensor:
        torch.manual_seed(0)
        w = torch.randn(3, requires_grad=True)
        h = torch.sigmoid(w)
        alias = h.detach().numpy() if make != "h" else h.data
        alias *= 3
        (h * w).sum().backward()
        assert w.grad is not None
        return w.grad

    plain = step()
    with inplace_magic.check() as seen:
        watched = step()
    assert torch.equal(plain, watched) and seen.findings


# ---- check() in a program -----------------------------------------------------------------------------------------

SILENT = """
    loss = (x ** 2).sum()
    x.data.add_(1)
    loss.backward()
"""


def test_places_are_files_and_lines() -> None:
    finding = watch(SILENT).findings[0]
    assert finding.changed is not None and finding.changed.label == "/home/somebody/train.py:3"
    assert finding.saved is not None and finding.needed is not None
    assert (finding.saved.line, finding.needed.line) == (2, 4)


def test_strict_raises_and_tells_both_lines() -> None:
    with pytest.raises(inplace_magic.SilentGradientError, match=r"changed at .*train.py:3, saved at .*train.py:2") as e:
        watch(SILENT, strict=True)
    assert len(e.value.findings) == 1


def test_strict_lets_healthy_code_and_other_errors_through() -> None:
    watch("(x ** 2).sum().backward()", strict=True)
    with pytest.raises(ZeroDivisionError):
        watch(SILENT + "    1 / 0", strict=True)


def test_the_traceback_is_the_users_own() -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as raised:
        watch("y = x.exp()\ny += 1\ny.sum().backward()")
    files = [str(entry.path) for entry in raised.traceback]
    assert not any("/inplace_magic/record/" in file for file in files)
    assert any("train.py" in file for file in files)


def test_after_the_given_number_of_backwards_nothing_is_watched() -> None:
    once = "(x ** 2).sum().backward()\n"
    seen = watch(once + textwrap.dedent(SILENT), backwards=1)
    assert not seen.findings and seen.backwards == 1
    assert watch(once + textwrap.dedent(SILENT), backwards=2).findings
    assert watch("torch.autograd.grad((x ** 2).sum(), x)\n" + textwrap.dedent(SILENT), backwards=1).findings == ()
    with pytest.raises(ValueError, match="1 or more"):
        watch(once, backwards=0)


def test_everything_is_put_back() -> None:
    def state() -> tuple[object, ...]:
        function = torch.autograd.Function.__dict__["apply"]
        context = torch.autograd.function.FunctionCtx
        return (
            torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad, function, context.save_for_backward,
            context.mark_dirty, torch.autograd.graph.disable_saved_tensors_hooks, torch._C._len_torch_function_stack(),
            torch_private.saved_tensors_hooks(),
        )  # fmt: skip

    before = state()
    watch(SILENT)
    watch("(x ** 2).sum().backward()\n" * 3, backwards=2)
    with pytest.raises(ZeroDivisionError):
        watch("1 / 0")
    with pytest.raises(RuntimeError):
        watch("y = x.exp()\ny += 1\ny.sum().backward()", backwards=1)
    assert state() == before


def test_a_check_within_a_check() -> None:
    x = torch.ones(3, requires_grad=True)
    with inplace_magic.check() as outer:
        loss = (x**2).sum()
        with inplace_magic.check(backwards=1) as inner:
            (x**3).sum().backward()
            (x**3).sum().backward()
        x.data.add_(1)
        loss.backward()
    assert not inner.findings and inner.backwards == 1
    assert len(outer.findings) == 1


def test_values_are_kept_only_as_far_as_memory_is_set_aside() -> None:
    code = SILENT.replace("x", "big").replace("loss =", "big = torch.ones(300_000, requires_grad=True); loss =", 1)
    assert watch(code).findings
    seen = watch(code, memory=1)
    assert not seen.findings and seen.unkept == 1 and "1 overwritten value not kept" in seen.summary
    assert watch(code, memory=None).findings


def test_memory_is_free_again_once_a_graph_is_gone() -> None:
    code = """
        for i in range(5):
            big = torch.ones(200_000, requires_grad=True)
            loss = (big ** 2).sum()
            big.data.mul_(1)
            loss.backward()
            del big, loss
    """
    assert watch(code, memory=1).unkept == 0


def test_a_watch_holds_no_graph() -> None:
    import gc
    import weakref

    class Marked(torch.Tensor):
        pass

    with inplace_magic.check():
        h = torch.ones(3, requires_grad=True) * 2
        reference = weakref.ref(h)
        log = h.detach()
        del h
        gc.collect()
        assert reference() is None
    assert log is not None


def test_a_debugger_keeps_its_trace() -> None:
    import sys

    def tracer(*event: object) -> Callable[..., object] | None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        seen = watch(WRONG["an array for a plot"][0])
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is tracer
    assert seen.findings  # found all the same, though not by its line


# ---- %%autograd_check ---------------------------------------------------------------------------------------------

START = "import torch\nx = torch.ones(3, requires_grad=True)"


def checked(cell: str, *before: str, options: str = "") -> Run:
    return run_cells(START, *before, f"%%autograd_check {options}\n{textwrap.dedent(cell).strip()}")


def test_a_healthy_cell_runs_as_always() -> None:
    run = checked("(x ** 2).sum().backward()\nx.grad")
    number = max(run.shell.user_ns["Out"])
    assert run.error is None and run.diagnosis is None
    assert torch.equal(run.shell.user_ns["_"], torch.full((3,), 2.0))
    assert run.shell.user_ns["Out"][number] is run.shell.user_ns["x"].grad
    assert f"Out[{number}]: tensor([2., 2., 2.])" in run.output
    assert "nothing found. 1 saved tensor, 0 in-place writes, 1 backward watched in" in run.output


def _function(forward: str, backward: str, *after: str) -> str:
    body = [
        "class Own(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, t):",
        *(f"        {line}" for line in forward.split("; ")),
        "    @staticmethod",
        "    def backward(ctx, g):",
        "        t, = ctx.saved_tensors",
        f"        return {backward}",
    ]
    return "\n".join([*body, *(after or ("Own.apply(x * 2).sum().backward()",))])


RIGHT_AS_WRITTEN = {
    "it saves its result": _function("t.exp_(); ctx.save_for_backward(t); return t.clone()", "g * t"),
    "and gives it out": _function("t.exp_(); ctx.save_for_backward(t); return t", "g * t"),
    "whose views are read on": _function(
        "t.exp_(); ctx.save_for_backward(t); return t",
        "g * t",
        "y = Own.apply(x * 2)",
        "for _ in range(20): y = y.view(3)",
        "y[1:].relu().sum().backward()",
    ),
    "through another Function of two inputs": _function(
        "t.exp_(); ctx.save_for_backward(t); return t",
        "g * t",
        "class Both(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, t, other): return t",
        "    @staticmethod",
        "    def backward(ctx, g): return g, g.sum(0, keepdim=True)",
        "w = torch.ones(1, requires_grad=True)",
        "Both.apply(Own.apply(x * 2), w * 2).square().sum().backward()",
    ),
    "with random numbers": _function("t.exp_(); ctx.save_for_backward(t); return t * torch.rand(3).sign()", "g * t"),
    "in half precision": _function(
        "t.exp_(); ctx.save_for_backward(t); return t.clone()", "g * t", "Own.apply(x.bfloat16() * 2).sum().backward()"
    ),
    "through numpy": _function(
        "t.exp_(); ctx.save_for_backward(t); return torch.from_numpy(t.numpy().copy())", "g * t"
    ),
    "its backward writes its own gradient": _function(
        "t.exp_(); ctx.save_for_backward(t); return t.clone()", "g.mul_(t)", "(Own.apply(x * 2) * 3).sum().backward()"
    ),
}


@pytest.mark.parametrize("cell", RIGHT_AS_WRITTEN.values(), ids=RIGHT_AS_WRITTEN)
def test_a_function_that_overwrites_its_input_and_wants_what_it_wrote_is_right(cell: str) -> None:
    run = checked(f"torch.manual_seed(0)\n{cell}\ndrawn = torch.rand(1)")
    assert run.diagnosis is None
    assert "nothing found" in run.output and "1 result of custom Functions that overwrite what they save" in run.output


_SAVES = "ctx.save_for_backward(t); return t.clone()"
_BOTH = "torch.cos(torch.sin(t)) * torch.cos(t) * g"
WANTS_WHAT_IT_WAS_GIVEN = {
    "a product": (f"t.mul_(t); {_SAVES}", "g * 2 * t", ()),
    "a mask": (f"t[t > 1] = 0; {_SAVES}", "g * (t <= 1)", ()),
    "by a loop": (f"for n in range(3): t[n] = t[n] ** 2; {_SAVES}", "g * 2 * t", ()),
    "of large values": (f"t.sin_(); {_SAVES}", "g * t.cos()", ("Own.apply(x * torch.tensor([300., 1., 2.])).sum().backward()",)),
    "of complex values": (f"t.mul_(t); {_SAVES}", "(2 * t).conj() * g", ("Own.apply(x * (1 + 2j)).real.sum().backward()",)),
    "that is a leaf": (f"t.mul_(t); {_SAVES}", "g * 2 * t", ("Own.apply(x).sum().backward()",)),
    "read on afterwards": (f"t.mul_(t); {_SAVES}", "g * 2 * t", ("h = x * 2", "Own.apply(h).sum().backward()", "h.detach()")),
    "with a random mask": (f"ctx.kept = torch.rand(3) > 0.5; t.mul_(t); {_SAVES.replace('t.clone()', 't * ctx.kept')}", "g * 2 * t * ctx.kept", ()),
    "where it is counted": (f"counts.add_(1); t.mul_(t); {_SAVES}; ", "g * 2 * t", ("(Own.apply(x * 2) * counts).sum().backward()",)),
    "where numpy draws": (f"ctx.tag = numpy.random.rand(); t.mul_(t); {_SAVES}; ", "g * 2 * t", ("(Own.apply(x * 2) * float(numpy.random.rand())).sum().backward()",)),
    "where it is saved with others": ("t.mul_(t); y = t * 2; ctx.save_for_backward(t); return y", "g * 4 * t", ()),
    "by a helper": (f"square_(t); {_SAVES}", "g * 2 * t", ()),
    "saved in a branch": ("t.mul_(t); if True: ctx.save_for_backward(t); return t.clone()", "g * 2 * t", ()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("forward", "backward", "after"), WANTS_WHAT_IT_WAS_GIVEN.values(), ids=WANTS_WHAT_IT_WAS_GIVEN
)
def test_a_function_that_overwrites_what_its_backward_wants_saves_a_copy(
    forward: str, backward: str, after: tuple[str, ...]
) -> None:
    start = "import numpy\nx = torch.tensor([1., 2., 3.], requires_grad=True)\ncounts = torch.zeros(1)\ndef square_(t):\n    t.mul_(t)"
    run = checked(f"torch.manual_seed(0)\n{_function(forward, backward, *after)}", start)
    found = run.diagnosis
    assert found is not None and found.saved is not None and "save_for_backward" in found.saved.text
    assert found.off and found.fixes and found.fixes[0].gradients == "same"
    assert "t_given = t.clone()" in next(iter(found.fixes[0].cells.values())) or "t = t." in found.fixes[0].diff


EARLIER = "a = (x * 2).exp(); a.data += 1; a.sum().backward()"


def test_what_an_earlier_cell_did_to_its_own_gradients_is_not_told_of_a_later_one() -> None:
    assert checked("y = x.exp()\ny.sum().backward()", EARLIER).diagnosis is None
    found = checked("h = x * 1\nloss = (h ** 2).sum()\nh.data += 1\nloss.backward()", EARLIER).diagnosis
    assert found is not None and len(found.conflicts) == 1 and found.changed is not None
    assert found.changed.label == "In[3]:4" and all(set(fix.cells) == {3} for fix in found.fixes)


def test_an_error_is_told_without_what_an_earlier_cell_did_to_its_own_gradients() -> None:
    found = run_cells(START, EARLIER, "y = x.exp()\ny += 1\ny.sum().backward()").diagnosis
    assert found is not None and len(found.conflicts) == 1
    assert [fix.gradients for fix in found.fixes] == ["same"] * len(found.fixes)


def test_what_an_earlier_cell_has_changed_is_told_of_the_cell_that_goes_back_through_it() -> None:
    found = checked("a.sum().backward()", "a = (x * 2).exp(); a.data += 1").diagnosis
    assert found is not None and found.changed is not None and found.changed.label == "In[2]:1"


def test_a_fix_that_leaves_such_a_gradient_as_wrong_as_it_is_is_none() -> None:
    cell = _function("t.mul_(t); ctx.kept = t; return t.clone()", "g * 2 * ctx.kept").replace(
        "t, = ctx.saved_tensors", ""
    )
    found = checked(cell).diagnosis
    assert found is None or not found.fixes


def test_what_a_backward_takes_from_its_ctx_is_there_when_it_runs() -> None:
    function = _function(
        "t.exp_(); ctx.tag = [1]; ctx.save_for_backward(t); return t.clone()", "g * t * ctx.tag.pop()", ""
    )
    cell = "y = Own.apply(x * 1.)\nz = (x * 2).exp()\nloss = (y * z).sum()\nz.data.add_(1)\nloss.backward()"
    found = checked(cell, "import torch\n" + function).diagnosis
    assert found is not None and found.changed is not None and found.changed.text.strip() == "z.data.add_(1)"
    assert found.fixes and found.fixes[0].gradients == "same"


def test_a_semicolon_keeps_the_value_to_itself() -> None:
    run = checked("(x ** 2).sum().backward()\nx.grad;  # not shown")
    assert "Out[" not in run.output and "nothing found" in run.output


@pytest.mark.parametrize(
    ("cell", "said"), [("y = x.exp()", True), ("print(1)", True), ("x.exp().sum().backward()", False)]
)
def test_where_nothing_goes_back_it_is_said_where_the_magic_belongs(cell: str, said: bool) -> None:
    output = checked(cell).output
    assert "nothing found" in output and ("belongs on the cell that trains" in output) is said


def test_a_finding_tells_places_how_far_off_and_a_proved_fix() -> None:
    run = checked("loss = (x ** 2).sum()\nx.data += 1\nloss.backward()")
    found = run.diagnosis
    assert found is not None and found.family == "silent"
    assert [p and p.label for p in (found.saved, found.changed, found.needed)] == ["In[2]:2", "In[2]:3", "In[2]:4"]
    assert found.off == {"x": 1.0}
    assert "x.grad is off by 100%" in run.output
    assert found.fixes[0].verified and found.fixes[0].gradients == "same"
    assert torch.equal(run.shell.user_ns["x"].grad, torch.full((3,), 4.0))  # the cell ran once, as it is


def test_a_change_that_plays_no_part_is_no_finding() -> None:
    run = checked("loss = 0 * (x ** 2).sum()\nx.data += 1\nloss.backward()")
    assert run.diagnosis is None and "nothing found" in run.output


def test_a_raising_cell_is_explained_from_this_run() -> None:
    run = checked("count = globals().get('count', 0) + 1\ny = x.exp()\ny += 1\ny.sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.family == "modified"
    assert run.diagnosis.changed is not None and run.diagnosis.changed.label == "In[2]:4"
    assert run.shell.user_ns["count"] == 1
    assert "record/" not in run.output


@pytest.mark.parametrize(
    ("statement", "error"),
    [("raise SystemExit(3)", SystemExit), ("raise KeyboardInterrupt", KeyboardInterrupt), ("1 / 0", ZeroDivisionError)],
)
def test_other_errors_pass_through(statement: str, error: type[BaseException]) -> None:
    run = checked(f"y = 1\n{statement}")
    assert isinstance(run.error, error) and run.diagnosis is None
    assert run.shell.user_ns["y"] == 1
    assert "nothing found" not in run.output


def listeners() -> list[Any]:
    return [
        [getattr(owner, name) for owner, name in torch_private.patched()],
        [list(hooks) for hooks in torch_private.step_hooks()],
        [torch_private.function_modes(), torch_private.saved_tensors_hooks(), sys.gettrace()],
    ]


@pytest.mark.random
@pytest.mark.parametrize("moment", ["__enter__", "__exit__"])
def test_ctrl_c_between_going_on_and_off_leaves_no_listener_behind(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours and torch's own context managers are interrupted in turn, right after entering and ahead of leaving."""

    manager: Any = contextlib._GeneratorContextManager
    plain, before = getattr(manager, moment), listeners()
    cell = "opt = torch.optim.SGD([x], 0.1)\nfor i in range(2):\n    (x.exp() * 2).sum().backward()\n    opt.step()"
    count, stop_at = 1, 0

    def interrupted(self: Any, *exception: Any) -> Any:
        nonlocal count
        count += 1
        if moment == "__exit__" and count == stop_at:
            signal.raise_signal(signal.SIGINT)
        result = plain(self, *exception)
        if moment == "__enter__" and count == stop_at:
            signal.raise_signal(signal.SIGINT)
        return result

    while count >= stop_at:
        count, stop_at = 0, stop_at + (1 if stop_at < 12 else 5)
        with contextlib.suppress(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr(manager, moment, interrupted)
            checked(cell)
        assert listeners() == before, stop_at
        gc.collect()
        assert listeners() == before, stop_at
    assert stop_at > 5


def test_strict_raises_after_the_report() -> None:
    run = checked("loss = (x ** 2).sum()\nx.data += 1\nloss.backward()", options="--strict")
    assert isinstance(run.error, inplace_magic.SilentGradientError)
    assert "A gradient is silently wrong" in run.output
    assert checked("(x ** 2).sum().backward()", options="--strict").error is None


def test_a_graph_of_an_earlier_cell_is_looked_at_too() -> None:
    run = checked("loss.backward()", "loss = (x ** 2).sum()\nx.data += 1")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == "In[2]:2"


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("opt.zero_grad()\nloss.backward()\nopt.step()", id="and steps"),
        pytest.param("loss.backward()\nprint(w.grad)", id="and shows a gradient"),
        pytest.param(
            "for _ in range(2):\n    opt.zero_grad()\n    loss.backward(retain_graph=True)\nopt.step()", id="twice"
        ),
    ],
)
def test_a_cell_that_goes_back_through_the_graph_of_an_earlier_one_is_right(cell: str) -> None:
    made = "w = torch.ones(3, requires_grad=True)\nopt = torch.optim.SGD([w], 0.1)"
    run = run_cells(f"import torch\n{made}", "loss = w.square().sum()", f"%%autograd_check\n{cell}")
    assert run.diagnosis is None
    assert "nothing found" in run.output


def test_a_function_that_was_taken_off_its_class_before_is_watched() -> None:
    made = """
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.t = t
                return t ** 3
            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.t ** 2 * g
        cube = Cube.apply
        """
    run = checked("h = x * 2\ny = cube(h)\nh += 1\n(y.sum() + h.sum()).backward()", textwrap.dedent(made))
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.line == 4


@pytest.mark.parametrize("magics", ["%%autograd_check\n%%time", "%%time\n%%autograd_check"])
def test_other_cell_magics_on_top(magics: str) -> None:
    run = run_cells(START, f"{magics}\nloss = (x ** 2).sum()\nx.data += 1\nloss.backward()")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == "In[2]:4" and run.diagnosis.changed.text == "x.data += 1"
    assert "Wall time" in run.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--backwards 0", "1 or more"),
        ("--memory -1", "above 0"),
        ("--nonsense", "(%%autograd_check? shows what it takes)"),
    ],
)
def test_options_that_make_no_sense(options: str, message: str) -> None:
    run = checked("x.sum().backward()", options=options)
    assert message in run.output
    assert run.shell.user_ns["x"].grad is None


@pytest.mark.parametrize(
    "started",
    ["run_cell('%%autograd_check\\nx.sum().backward()')", "run_cell_magic('autograd_check', '', 'x.sum().backward()')"],
)
def test_a_check_that_another_cell_starts_is_declined_in_a_line(started: str) -> None:
    run = run_cells(START, f"done = 1\nget_ipython().{started}")
    assert "UsageError: " in run.output
    assert "has to stand on top of a cell" in run.output
    assert "ValueError" not in run.output
    assert run.shell.user_ns["x"].grad is None


def test_check_in_a_cell_names_the_cell() -> None:
    run = run_cells(
        START,
        """
        import inplace_magic
        with inplace_magic.check() as seen:
            loss = (x ** 2).sum()
            x.data += 1
            loss.backward()
        """,
    )
    (finding,) = run.shell.user_ns["seen"].findings
    assert finding.changed.label == "In[2]:4" and finding.changed.text == "x.data += 1"


def test_once_its_backwards_are_over_nothing_of_a_watch_is_left_that_could_cost_anything() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    before = listeners()
    with inplace_magic.check(backwards=1):
        assert listeners() != before
        step()
        step()
        assert listeners() == before
    assert listeners() == before


def test_a_tensor_that_is_detached_in_place_counts_as_written() -> None:
    run = run_cells(
        "import torch\nw = torch.ones(3, requires_grad=True)",
        "%%autograd_check\nh = w * 2\nh.detach_()\nw.sum().backward()",
    )
    assert "1 in-place write," in run.output
