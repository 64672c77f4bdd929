"""Programs with a gradient that is silently wrong, each with its healthy twin.

One text holds both. A line that ends in ``#!`` is in the wrong program alone, and is the line to blame; one that ends
in ``#-`` is in the wrong program alone, one that ends in ``#+`` in the twin alone; ``#<`` marks a line to blame that
both have. ``x`` (6 elements), ``w`` (3 by 3) and ``v`` (3) are leaves; ``loss`` is what goes backward.

That a program is wrong is proved without the package (test_programs.py): the derivatives of ``loss`` by differences in
float64, from reruns with a leaf moved a little, differ from what the program's backward gives. ``by="twin"``: its
loss cannot be differentiated so (a hook changes gradients on purpose), and the twin's gradients are the reference.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """``setup`` runs in a cell of its own ahead. ``line`` is False where no line of the cell wrote."""

    name: str
    text: str
    setup: str = ""
    by: str = "differences"
    line: bool = True
    fixable: bool = True

    @property
    def wrong(self) -> str:
        return "".join(line for line in self._lines() if not line.rstrip().endswith("#+"))

    @property
    def twin(self) -> str:
        return "".join(line for line in self._lines() if not line.rstrip().endswith(("#!", "#-")))

    @property
    def blamed(self) -> frozenset[tuple[str, str]]:
        """(cell, text) of the lines to blame; the first word is ``setup`` or ``cell``."""
        marked = [("cell", line) for line in self.wrong.splitlines()]
        marked += [("setup", line) for line in textwrap.dedent(self.setup).splitlines()]
        return frozenset((cell, line.strip()) for cell, line in marked if line.rstrip().endswith(("#!", "#<")))

    def _lines(self) -> list[str]:
        return textwrap.dedent(self.text).lstrip("\n").splitlines(keepends=True)


START = """
import copy, ctypes, tempfile, threading, queue
from concurrent.futures import ThreadPoolExecutor
import numpy, torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
torch.manual_seed(3)
x = torch.randn(6, requires_grad=True)
w = torch.randn(3, 3, requires_grad=True)
v = torch.rand(3).add(0.5).requires_grad_()
"""

CHECKPOINTED = [
    Program("a residual added onto a sigmoid in a checkpoint", """
        def block(t):
            out = torch.sigmoid(t @ w)
            out += t  #!
            out = out + t  #+
            return torch.relu(out)
        loss = checkpoint(block, v * 1, use_reentrant=False).square().sum()
        loss.backward()
    """),
    Program("an exp scaled in place in a checkpoint", """
        def block(t):
            e = (t @ w).exp()
            e.mul_(2)  #!
            e = e * 2  #+
            return e.square()
        loss = checkpoint(block, v * 1, use_reentrant=False).sum()
        loss.backward()
    """),
    Program("weights stepped between a checkpoint and its recomputation", """
        optimizer = torch.optim.SGD([w], 0.5)
        (w * 3).sum().backward()
        critic = torch.tanh(checkpoint(lambda t: torch.tanh(t @ w), v * 1, use_reentrant=False)).sum()
        loss = critic
        optimizer.step()  #!
        w.grad = None
        loss.backward()
        optimizer.step()  #+
    """),
    Program("weights stepped before a reentrant checkpoint goes backward", """
        optimizer = torch.optim.SGD([w], 0.5)
        (w * 3).sum().backward()
        loss = checkpoint(lambda t: torch.tanh(t @ w), v * 1, use_reentrant=True).sum()
        optimizer.step()  #!
        w.grad = None
        loss.backward()
        optimizer.step()  #+
    """),
    Program("weights scaled under no_grad before a reentrant checkpoint goes backward", """
        def block(t):
            return torch.tanh(t @ w)
        loss = checkpoint(block, v * 1, use_reentrant=True).square().sum()
        with torch.no_grad():
            w.mul_(3)  #!
            w.mul_(1)  #+
        loss.backward()
    """),
    Program("a temperature annealed before the recomputation", """
        temperature = torch.tensor(2.0)
        loss = checkpoint(lambda t: torch.sigmoid(t @ w * temperature), v * 1, use_reentrant=False).sum()
        temperature.mul_(0.5)  #!
        loss.backward()
        temperature.mul_(0.5)  #+
    """),
    Program("a module's buffer annealed before a reentrant recomputation", """
        class Sharp(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("beta", torch.tensor(1.0))
            def forward(self, t):
                return torch.sigmoid(t @ w * self.beta)
        sharp = Sharp()
        loss = checkpoint(sharp, v * 1, use_reentrant=True).square().sum()
        sharp.beta.add_(2)  #!
        loss.backward()
    """),
    Program("a counter that the checkpointed forward itself advances", """
        step = torch.zeros(3)
        def block(t):
            step.add_(1)  #!
            now = step + 1  #+
            return torch.tanh(t @ w - (step if step.sum() > 0 else now))
        loss = checkpoint(block, v * 1, use_reentrant=False).square().sum()
        loss.backward()
    """),
    Program("dropout recomputed with another random state", """
        def block(t):
            return F.dropout(torch.tanh(t.repeat(8) * 2), 0.5).square()
        loss = checkpoint(block, x * 1, use_reentrant=False, preserve_rng_state=False).sum()  #!
        loss = checkpoint(block, x * 1, use_reentrant=False).sum()  #+
        torch.rand(7)
        loss.backward()
    """),
    Program("dropout of a reentrant checkpoint recomputed with another random state", """
        def block(t):
            return F.dropout(torch.tanh(t.repeat(8) * 2), 0.5).square()
        loss = checkpoint(block, x * 1, use_reentrant=True, preserve_rng_state=False).sum()  #!
        loss = checkpoint(block, x * 1, use_reentrant=True).sum()  #+
        torch.rand(7)
        loss.backward()
    """),
    Program("a module that is in eval mode when it is recomputed", """
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())
        batch = torch.randn(4, 3) * v
        loss = checkpoint(net, batch, use_reentrant=True).square().sum()  #<
        net.eval()  #-
        loss.backward()
    """),
    Program("one of several segments stepped before its recomputation", """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
        loss = checkpoint_sequential(net, 2, v * 1, use_reentrant=False).square().sum()
        with torch.no_grad():
            net[0].weight.mul_(3)  #!
            net[0].weight.mul_(1)  #+
        loss.backward()
    """),
    Program("weights stepped before a reentrant checkpoint whose output was added to", """
        out = checkpoint(lambda t: torch.tanh(t @ w), v * 1, use_reentrant=True)
        out += v
        loss = out.square().sum()
        with torch.no_grad():
            w.mul_(3)  #!
            w.mul_(1)  #+
        loss.backward()
    """),
    Program("an array of what a checkpoint reads", """
        scale = torch.full((3,), 2.0)
        loss = checkpoint(lambda t: torch.tanh(t @ w) * scale, v * 1, use_reentrant=False).sum()
        array = numpy.asarray(scale)
        array *= 3  #!
        loss.backward()
    """),
    Program("a global list appended to between forward and recomputation", """
        scale = [torch.tensor(2.0)]
        loss = checkpoint(lambda t: (t @ w).mul(scale[-1]).tanh(), v * 1, use_reentrant=False).sum()  #<
        scale.append(torch.tensor(5.0))  #-
        loss.backward()
    """),
]  # fmt: skip

FUNCTIONS = [
    Program("a table kept on ctx and filled again by the second forward", """
        table = torch.zeros(6)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                table.copy_(t.detach() * 2)  #!
                ctx.slope = table  #-
                ctx.slope = t.detach() * 2  #+
                return t * t
            @staticmethod
            def backward(ctx, g):
                return g * ctx.slope
        loss = (Scale.apply(x) * Scale.apply(x + 1)).sum()
        loss.backward()
    """),
    Program("tensors in a list on ctx that a second forward fills again", """
        table = torch.zeros(6)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                table.copy_(t.detach() * 2)  #!
                ctx.kept = [table]  #-
                ctx.kept = [t.detach() * 2]  #+
                return t * t
            @staticmethod
            def backward(ctx, g):
                return g * ctx.kept[0]
        loss = (Scale.apply(x) * Scale.apply(x + 1)).sum()
        loss.backward()
    """),
    Program("a dictionary on ctx that the program writes afterwards", """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, slope):
                ctx.kept = {"slope": slope}
                return t * slope
            @staticmethod
            def backward(ctx, g):
                return g * ctx.kept["slope"], None
        slope = torch.ones(6) * 2
        loss = Scale.apply(x, slope).square().sum()
        slope.mul_(3)  #!
        loss.backward()
    """),
    Program("an array of a ctx attribute written", """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, slope):
                ctx.slope = slope
                return t * slope
            @staticmethod
            def backward(ctx, g):
                return g * ctx.slope, None
        slope = torch.ones(6) * 2
        loss = Scale.apply(x, slope).square().sum()
        array = slope.numpy()
        array += 1  #!
        loss.backward()
    """),
    Program("weights of a reversible block stepped before its backward", """
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 1
            @staticmethod
            def backward(ctx, g):
                return g
        class Reversible(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, block, *parameters):
                ctx.block = block
                with torch.no_grad():
                    a, b = t.chunk(2)
                    ctx.out = torch.cat([a, b + block(a)])
                return ctx.out.clone()
            @staticmethod
            def backward(ctx, g):
                a, out = ctx.out.chunk(2)
                with torch.enable_grad():
                    Same.apply(out.detach().requires_grad_())
                    a = a.detach().requires_grad_()
                    step = ctx.block(a)
                torch.autograd.backward(step, g.chunk(2)[1])
                return torch.cat([g.chunk(2)[0] + a.grad, g.chunk(2)[1]]), None, None, None
        block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        loss = Reversible.apply(x * 1, block, *block.parameters()).square().sum()
        block[0].weight.data.mul_(3)  #!
        loss.backward()
    """),
    Program("a scratch buffer that a Function's backward fills before it reads it", """
        scratch = torch.zeros(6)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, slope):
                ctx.save_for_backward(slope)
                torch.mul(t, slope, out=scratch)
                return scratch.clone()
            @staticmethod
            def backward(ctx, g):
                torch.mul(g, ctx.saved_tensors[0], out=scratch)
                return scratch.clone(), None
        slope = torch.full((6,), 2.0)
        loss = Scale.apply(x, slope).square().sum()
        scratch.fill_(7)
        slope.data.fill_(3)  #!
        loss.backward()
    """),
    Program("a value scaled past the graph that a Function reads", """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 2
            @staticmethod
            def backward(ctx, g):
                return g * 2
        h = x * 2
        h.data.mul_(3)  #!
        h = h * 3  #+
        loss = Double.apply(h).sum()
        loss.backward()
    """),
    Program("a ctx attribute written through .data", """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, slope):
                ctx.slope = slope
                return t * slope
            @staticmethod
            def backward(ctx, g):
                return g * ctx.slope, None
        slope = torch.ones(6) * 2
        loss = Scale.apply(x, slope).square().sum()
        slope.data.add_(1)  #!
        loss.backward()
    """),
    Program("an object on ctx whose tensor changes", """
        class Settings:
            def __init__(self, slope):
                self.slope = slope
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, settings):
                ctx.settings = settings
                return t * settings.slope
            @staticmethod
            def backward(ctx, g):
                return g * ctx.settings.slope, None
        settings = Settings(torch.full((6,), 2.0))
        loss = Scale.apply(x, settings).square().sum()
        settings.slope.zero_()  #!
        loss.backward()
    """),
    Program("a closure of a Function's backward that changes", """
        slope = torch.full((6,), 2.0)
        def make(slope):
            class Scale(torch.autograd.Function):
                @staticmethod
                def forward(ctx, t):
                    return t * slope
                @staticmethod
                def backward(ctx, g):
                    return g * slope
            return Scale
        loss = make(slope).apply(x).square().sum()
        slope.zero_()  #!
        loss.backward()
    """),
    Program("a global that a Function's backward reads", """
        slope = torch.full((6,), 2.0)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * slope
            @staticmethod
            def backward(ctx, g):
                return g * slope
        loss = Scale.apply(x).square().sum()
        slope.zero_()  #!
        loss.backward()
    """),
    Program("a gradient on ctx scaled in backward, the graph being used twice", """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.slope = 2 * t.detach()
                return t * t
            @staticmethod
            def backward(ctx, g):
                ctx.slope *= g  #!
                return ctx.slope  #-
                return ctx.slope * g  #+
        loss = Square.apply(x * 1).sum() * 0.5
        torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
    """),
    Program("an attribute of ctx bound anew in backward, the graph being used twice", """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.slope = 2 * t.detach()
                return t * t
            @staticmethod
            def backward(ctx, g):
                ctx.slope = ctx.slope * g  #!
                return ctx.slope  #-
                return ctx.slope * g  #+
        loss = Square.apply(x * 1).sum() * 0.5
        torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
    """),
    Program("another node's backward changes what is on ctx", """
        shared = torch.full((6,), 2.0)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.slope = shared
                return t * shared
            @staticmethod
            def backward(ctx, g):
                slope = ctx.slope.clone()
                shared.mul_(0.5)  #!
                return g * slope
        loss = (Scale.apply(x) + Scale.apply(x * 2).square()).sum()
        loss.backward()
    """, fixable=False),
    Program(".data written in a Function's backward, which another node has saved", """
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.save_for_backward(t)
                return t * 1.0
            @staticmethod
            def backward(ctx, g):
                (t,) = ctx.saved_tensors
                t.data.mul_(3.0)  #!
                return g
        h = x * 1.0
        z = h * h
        y = Same.apply(h)
        loss = z.sum() + y.sum()
        loss.backward()
    """),
    Program("an input rounded in a Function without mark_dirty, and read afterwards", """
        class Soft(torch.autograd.Function):
            @staticmethod
            def forward(ctx, h):
                return h.clamp_(-0.5, 0.5).clone()  #!
                return h.clamp(-0.5, 0.5)  #+
            @staticmethod
            def backward(ctx, g):
                return g
        h = x * 2
        q = Soft.apply(h)
        loss = (h * 3 - q.detach()).sum() if q.sum() < -1e9 else (h * 3).sum()
        loss.backward()
    """),
    Program("an input scaled in a Function without mark_dirty, and squared before", """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, h):
                h.data.mul_(2)  #!
                return h.clone()  #-
                return h * 2  #+
            @staticmethod
            def backward(ctx, g):
                return g * 2
        h = x * 2
        s = h.square().sum()
        loss = s + Twice.apply(h).sum()
        loss.backward()
    """),
    Program("an output kept on ctx that is changed afterwards", """
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                out = t.exp()
                ctx.out = out.detach()
                return out
            @staticmethod
            def backward(ctx, g):
                return g * ctx.out
        y = Exp.apply(x)
        loss = y.sum()
        y.data.add_(1)  #!
        loss.backward()
    """),
    Program("an array on ctx that is filled again", """
        buffer = numpy.ones(6)
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                buffer[:] = t.detach().numpy() * 2  #!
                ctx.slope = buffer  #-
                ctx.slope = t.detach().numpy() * 2  #+
                return t * t
            @staticmethod
            def backward(ctx, g):
                return g * torch.from_numpy(ctx.slope)
        loss = (Scale.apply(x) * Scale.apply(x + 1)).sum()
        loss.backward()
    """),
]  # fmt: skip

MEMORY = [
    Program("the values of a sparse matrix written after spmm", """
        values = torch.ones(3)
        A = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [0, 0, 1]]), values, (2, 3))
        loss = (A @ w).square().sum()
        values *= 3  #!
        loss.backward()
    """),
    Program("a mask on the values of a csr matrix", """
        values = torch.ones(3)
        A = torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([0, 0, 1]), values, (2, 3))
        loss = (A @ w).square().sum()
        values[values > 0] = 0.25  #!
        loss.backward()
    """),
    Program("the indices of a sparse matrix written", """
        indices = torch.tensor([[0, 1, 1], [0, 0, 1]])
        A = torch.sparse_coo_tensor(indices, torch.ones(3), (2, 3))
        loss = (A @ w).square().sum()
        indices[1] = 2  #!
        loss.backward()
    """),
    Program("the imaginary part assigned through .data", """
        z = torch.complex(v, v * 2)
        s = z * 1.0
        loss = (s * torch.complex(v, v)).abs().square().sum()
        d = s.data
        d.imag = torch.zeros(3)  #!
        loss.backward()
    """),
    Program("the real part assigned through .data", """
        z = torch.complex(v, v * 2)
        s = z * 1.0
        loss = (s * s).abs().square().sum()
        d = s.data
        d.real = torch.zeros(3)  #!
        loss.backward()
    """),
    Program("the imaginary part zeroed in place", """
        s = torch.complex(v, v * 2) * 1.0
        loss = (s * s).abs().square().sum()
        s.data.imag.zero_()  #!
        loss.backward()
    """),
    Program("a write through view_as_real", """
        s = torch.complex(v, v * 2) * 1.0
        loss = (s * s).abs().square().sum()
        torch.view_as_real(s.detach().data)[:, 1] = 0  #!
        loss.backward()
    """),
    Program("memory set from C", """
        h = x * 1.0
        loss = (h * h).sum()
        ctypes.memset(h.data_ptr(), 0, 24)  #!
        loss.backward()
    """),
    Program("memory set from C ahead of a third backward", """
        for _ in range(2):
            (x * 1.0).square().sum().backward()
        x.grad = None
        h = x * 1.0
        loss = (h * h).sum()
        ctypes.memset(h.data_ptr(), 0, 24)  #!
        loss.backward()
    """),
    Program("memory that grows, then is scaled", """
        h = x.sin()
        loss = (h * h).sum()
        memory = h.data
        memory.resize_(20)
        memory.mul_(0.5)  #!
        loss.backward()
    """),
    Program("a storage that grows under what a Function keeps", """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, slope):
                ctx.slope = slope
                return t * slope
            @staticmethod
            def backward(ctx, g):
                return g * ctx.slope, None
        slope = torch.ones(6) * 2
        loss = Scale.apply(x, slope).square().sum()
        slope.untyped_storage().resize_(512)
        slope.data.mul_(3)  #!
        loss.backward()
    """),
    Program("memory moved from C", """
        h = torch.sigmoid(x)
        loss = h.sum()
        source = torch.zeros(6)
        ctypes.memmove(h.data_ptr(), source.data_ptr(), 48)  #!
        loss.backward()
    """),
    Program("torch.jit.script with .data", """
        h = x.tanh()
        loss = h.sum()
        clip(h)  #!
        loss.backward()
    """, setup="""
        @torch.jit.script
        def clip(t: torch.Tensor):
            t.data.clamp_(-0.1, 0.1)
    """),
    Program("a memory map centred in place", """
        loss = (torch.from_numpy(rows[:2]) @ w).square().sum()
        rows -= rows.mean(0)  #!
        loss.backward()
    """, setup="""
        rows = numpy.memmap(tempfile.TemporaryFile(), dtype=numpy.float64, mode="w+", shape=(4, 3))
        rows[:] = numpy.arange(12).reshape(4, 3) / 3
    """),
    Program("a memory map that a function centres", """
        loss = (torch.from_numpy(rows) @ w).square().sum()
        centre(rows)  #-
        loss.backward()
    """, setup="""
        rows = numpy.memmap(tempfile.TemporaryFile(), dtype=numpy.float64, mode="w+", shape=(4, 3))
        rows[:] = numpy.arange(12).reshape(4, 3) / 3
        def centre(array):
            array -= array.mean(0)  #<
    """),
    Program("an array from a batch function centred in place", """
        loss = (batch() @ w).square().sum()
        rows -= rows.mean(0)  #!
        loss.backward()
    """, setup="""
        rows = numpy.arange(12.0).reshape(4, 3) / 3
        def batch():
            return torch.from_numpy(rows[:2])
    """),
    Program("a DLPack alias zeroed", """
        t = torch.full((6,), 2.0)
        other = torch.utils.dlpack.from_dlpack(t)
        loss = (x * t).square().sum()
        other.zero_()  #!
        loss.backward()
    """),
    Program("numpy's own DLPack alias written", """
        t = torch.full((6,), 2.0)
        array = numpy.asarray(t)
        loss = (x * t).square().sum()
        numpy.multiply(array, 3, out=array)  #!
        loss.backward()
    """),
    Program("shared memory written by way of its buffer", """
        t = torch.full((6,), 2.0).share_memory_()
        view = numpy.frombuffer((ctypes.c_double * 6).from_address(t.data_ptr()))
        loss = (x * t).square().sum()
        view[:] = 5  #!
        loss.backward()
    """),
    Program("a bytearray under a tensor", """
        raw = bytearray(numpy.full(6, 2.0).tobytes())
        t = torch.frombuffer(raw, dtype=torch.float64)
        loss = (x * t).square().sum()
        raw[:] = bytes(48)  #!
        loss.backward()
    """),
    Program("a step of fused SGD between forward and backward", """
        optimizer = torch.optim.SGD([w], 0.5, fused=True)
        (w * 3).sum().backward()
        loss = torch.tanh(torch.tanh(v @ w) @ w).sum()
        optimizer.step()  #!
        w.grad = None
        loss.backward()
        optimizer.step()  #+
    """),
    Program("an index written through an expanded alias", """
        y = x.exp()
        loss = y.sum()
        rows = y.data.expand(2, 6)
        rows[:1, torch.tensor([0, 2])] = 0.0  #!
        rows = rows.clone()  #+
        loss.backward()
    """),
]  # fmt: skip

HOOKED = [
    Program("save_on_cpu, written after the block", """
        with save_on_cpu():
            e = x.exp()
        e += 5  #!
        e = e + 5  #+
        loss = e.sum()
        loss.backward()
    """),
    Program("save_on_cpu, written within the block", """
        with save_on_cpu():
            e = x.exp()
            e += 5  #!
            e = e + 5  #+
            loss = e.sum()
        loss.backward()
    """),
    Program("save_on_cpu, a masked column", """
        with save_on_cpu():
            p = (v @ w).softmax(-1)
        p[0] = 0.0  #!
        p = p * torch.tensor([0.0, 1.0, 1.0])  #+
        loss = p.square().sum()
        loss.backward()
    """),
    Program("save_on_cpu, the weights stepped in between", """
        optimizer = torch.optim.SGD([w], 0.5)
        (w * 3).sum().backward()
        with save_on_cpu():
            loss = torch.tanh(torch.tanh(v @ w) @ w).sum()
        optimizer.step()  #!
        w.grad = None
        loss.backward()
        optimizer.step()  #+
    """),
    Program("hooks of one's own that keep the tensor itself", """
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.exp()
        y += 1  #!
        y = y + 1  #+
        loss = y.sum()
        loss.backward()
    """),
    Program("hooks of one's own that keep it in a tuple", """
        with saved_tensors_hooks(lambda t: (t.shape, t.detach()), lambda p: p[1].view(p[0])):
            y = x.sigmoid()
        y.mul_(2)  #!
        y = y * 2  #+
        loss = y.square().sum()
        loss.backward()
    """),
    Program("hooks of one's own that keep a row expanded over others", """
        row = v * 1
        with saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            y = row.expand(3, 3) * w
        row.data.mul_(2)  #!
        loss = y.square().sum()
        loss.backward()
    """),
    Program("hooks of one's own that pack into one staging buffer", """
        stage = torch.zeros(6)
        def pack(t):
            stage.copy_(t)  #!
            return stage  #-
            return t.clone()  #+
        with saved_tensors_hooks(pack, lambda t: t):
            y = x.exp()
            z = (y + 1).sigmoid()
        loss = (y + z).sum()
        loss.backward()
    """),
    Program("a tensor hook that scales what it is handed", """
        a, b = x * 2, x * 3
        b.register_hook(lambda g: g.mul_(0.1))  #!
        b.register_hook(lambda g: g.mul(0.1))  #+
        loss = (a + b).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a hook that returns what it changed", """
        def damp(g):
            g *= 0.1  #!
            g = g * 0.1  #+
            return g
        a, b = x * 2, x * 3
        b.register_hook(damp)
        loss = (a + b).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a full backward pre-hook that scales what it is handed", """
        net, other = nn.Linear(3, 3), nn.Linear(3, 3)
        def damp(module, g):
            g[0].mul_(0.1)  #!
            return (g[0] * 0.1,)  #+
        other.register_full_backward_pre_hook(damp)
        loss = (net(v) + other(v)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a full backward hook that scales the gradient of the output", """
        net, other = nn.Linear(3, 3), nn.Linear(3, 3)
        batch = v * 1
        def damp(module, gi, go):
            go[0].mul_(0.1)  #!
            go[0].mul(0.1)  #+
        other.register_full_backward_hook(damp)
        loss = (net(batch) + other(batch)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a full backward hook that clamps the gradient of the input", """
        net, other = nn.Linear(3, 3), nn.Identity()
        batch = v * 1
        def clip(module, gi, go):
            gi[0].clamp_(-0.01, 0.01)  #!
            return (gi[0].clamp(-0.01, 0.01),)  #+
        other.register_full_backward_hook(clip)
        loss = (net(batch) + other(batch)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a randomised relu under hooks that take copies", """
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):  #-
            y = F.rrelu(x, 0.1, 0.9, training=True)  #!
        y = F.rrelu(x, 0.1, 0.9, training=True)  #+
        loss = y.square().sum()
        loss.backward()
    """, fixable=False),
    Program("a randomised relu in a checkpoint", """
        def block(t):
            return F.rrelu(t * 1, 0.1, 0.9, training=True)
        y = checkpoint(block, x, use_reentrant=False)  #!
        y = block(x)  #+
        loss = y.square().sum()
        loss.backward()
    """),
    Program("a pre-hook on one branch of a residual block", """
        block = nn.Linear(3, 3)
        base = v * 1
        def flip(module, g):
            g[0].neg_()  #!
            return (-g[0],)  #+
        block.register_full_backward_pre_hook(flip)
        loss = (base + block(base)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a hook on one branch of a residual block, and its leaf's gradient by autograd.grad", """
        high = torch.tanh(v)
        high.register_hook(lambda g: g.mul_(0.3))  #!
        high.register_hook(lambda g: g.mul(0.3))  #+
        loss = (v + high).square().sum()
        (v.grad,) = torch.autograd.grad(loss, [v])
    """, by="twin"),
    Program("a full backward hook on one branch of a residual block", """
        block = nn.Linear(3, 3)
        base = v * 1
        def damp(module, gi, go):
            go[0].mul_(0.1)  #!
            go[0].mul(0.1)  #+
        block.register_full_backward_hook(damp)
        loss = (base + block(base)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a tensor hook on one branch of a residual block", """
        base = v * 1
        high = torch.tanh(base)
        high.register_hook(lambda g: g.mul_(0.3))  #!
        high.register_hook(lambda g: g.mul(0.3))  #+
        loss = (base + high).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a hook that zeroes the gradient of one branch of a residual block", """
        base = v * 1
        high = torch.tanh(base)
        high.register_hook(lambda g: g.zero_())  #!
        high.register_hook(lambda g: torch.zeros_like(g))  #+
        loss = (base + high).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a Function on one branch of a residual block that writes its gradient", """
        class Gate(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 2
            @staticmethod
            def backward(ctx, g):
                g *= 2  #!
                g = g * 2  #+
                return g * 1
        base = v * 1
        loss = (base + Gate.apply(base)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a Function's backward that writes its gradient", """
        class Gate(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 2
            @staticmethod
            def backward(ctx, g):
                g[0] = 0  #!
                g = torch.cat([g[:1] * 0, g[1:]])  #+
                return g * 2
        loss = (x * 3 + Gate.apply(x)).square().sum()
        loss.backward()
    """, by="twin"),
    Program("a hook that hands out one staging buffer twice", """
        stage = torch.zeros(6)
        def halve(g):
            stage.copy_(g).mul_(0.5)  #!
            return stage  #-
            return g * 0.5  #+
        a, b = x + 0, x * 3 + 0
        c, d = a.view(2, 3), b.view(2, 3)
        c.register_hook(lambda g: halve(g.view(-1)).view(2, 3))
        d.register_hook(lambda g: halve(g.view(-1)).view(2, 3))
        loss = (c.square() + d.square()).sum()
        loss.backward()
    """, by="twin"),
]  # fmt: skip

ELSEWHERE = [
    Program("a worker thread writes .data", """
        buffer = torch.ones(6)
        def work():
            torch.ones(1)
            buffer.data.copy_(torch.full((6,), 7.0))  #!
        loss = (buffer * x).square().sum()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        loss.backward()
    """),
    Program("a pool's thread clamps a saved weight", """
        def clip(p):
            torch.ones(1)
            p.data.clamp_(-0.1, 0.1)  #!
        loss = (v @ w).tanh().square().sum()
        loss = loss + ((v * v) @ w).sum()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(clip, w).result()
        loss.backward()
    """),
    Program("a thread of an earlier cell writes an array", """
        loss = (torch.from_numpy(frames) * x).square().sum()
        jobs.put(1)  #-
        jobs.join()
        loss.backward()
        jobs.put(None)
        worker.join()
    """, setup="""
        frames = numpy.ones(6)
        jobs = queue.Queue()
        def work():
            while jobs.get() is not None:
                frames[:] = 7  #<
                jobs.task_done()
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
    """, line=False, fixable=False),
    Program("one tensor given twice to autograd.grad", """
        loss = w.square().sum()
        grads = torch.autograd.grad(loss, [w, w])
        grads = [g.clone() for g in grads]  #+
        for g in grads:
            g.mul_(0.5)  #<
        w.grad = grads[0]
    """, by="twin"),
    Program("two leaves whose gradients are one tensor", """
        buffer = torch.zeros(6)
        y = x.detach().clone().requires_grad_()
        x.grad = buffer
        y.grad = buffer  #!
        y.grad = buffer.clone()  #+
        loss = (x.square() + 3 * y).sum()
        loss.backward()
    """, by="twin"),
    Program("the gradients of two tasks kept without a copy", """
        optimizer = torch.optim.SGD([w], 0.1)
        kept = []
        for scale in (1.0, 3.0):
            optimizer.zero_grad(set_to_none=False)  #-
            optimizer.zero_grad()  #+
            loss = torch.tanh(v @ w).sum() * scale
            loss.backward()  #<
            kept.append(w.grad)
        w.grad = kept[0] * 0.5 + kept[1] * 0.5
        optimizer.step()
    """, by="twin"),
    Program("rows of a Jacobian whose seed the graph hands on", """
        y = x + 0.5
        seed = torch.zeros(6)
        rows = []
        for i in range(6):
            seed.zero_()  #<
            seed[i] = 1
            rows.append(torch.autograd.grad(y, x, seed, retain_graph=True)[0])  #-
            rows.append(torch.autograd.grad(y, x, seed.clone(), retain_graph=True)[0])  #+
        x.grad = torch.stack(rows).sum(1) + torch.stack(rows)[0]
    """, by="twin"),
    Program("an optimizer whose net is detached", """
        net, head = nn.Linear(3, 3), nn.Linear(3, 1)
        of_net, of_head = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)
        for _ in range(2):
            of_net.zero_grad()
            of_head.zero_grad()
            loss = head(net(v).detach()).square().sum()  #!
            loss = head(net(v)).square().sum()  #+
            loss.backward()
            of_net.step()
            of_head.step()
    """, by="twin"),
    Program("an encoder under a leftover no_grad", """
        net, head = nn.Linear(3, 3), nn.Linear(3, 1)
        of_net, of_head = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)
        for _ in range(2):
            of_net.zero_grad()
            of_head.zero_grad()
            with torch.set_grad_enabled(True):  #+
                code = torch.tanh(net(v))  #+
            with torch.no_grad():  #!
                code = torch.tanh(net(v))  #-
            loss = head(code).square().sum()
            loss.backward()
            of_net.step()
            of_head.step()
    """, by="twin"),
    Program("MAML on a copy that is written through .data", """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        fast = copy.deepcopy(net)  #!
        fast = net  #+
        grads = torch.autograd.grad(fast(v).square().mean(), list(fast.parameters()), create_graph=True)
        for p, g in zip(fast.parameters(), grads):
            p.data -= 0.1 * g
        optimizer.zero_grad()
        loss = fast(v).square().mean()
        loss.backward()
        optimizer.step()
    """, by="twin", fixable=False),
    Program("fast weights cloned from .data", """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        fast = {n: p.data.clone().requires_grad_() for n, p in net.named_parameters()}  #!
        fast = {n: p.clone() for n, p in net.named_parameters()}  #+
        loss = torch.func.functional_call(net, fast, v).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """, by="twin"),
    Program("a state dict assigned after the optimizer was made", """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        state = {n: t.clone() for n, t in net.state_dict().items()}
        net.load_state_dict(state, assign=True)  #!
        net.load_state_dict(state)  #+
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(v).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a reentrant checkpoint whose input needs no gradient", """
        net, head = nn.Linear(3, 3), nn.Linear(3, 1)
        of_net, of_head = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)
        batch = torch.randn(2, 3)
        for _ in range(2):
            of_net.zero_grad()
            of_head.zero_grad()
            code = checkpoint(net, batch, use_reentrant=True)  #!
            code = checkpoint(net, batch, use_reentrant=False)  #+
            loss = head(code).square().sum()
            loss.backward()
            of_net.step()
            of_head.step()
    """, by="twin"),
    Program("a model moved to new parameters after the optimizer was made", """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        net.weight = nn.Parameter(net.weight.detach().clone())  #!
        net.bias = nn.Parameter(net.bias.detach().clone())  #-
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(v).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
]  # fmt: skip

KNOWN = [
    Program("a clamp through .data after the loss", """
        loss = (x.exp() * x).sum()
        x.data.clamp_(-0.1, 0.1)  #!
        loss.backward()
    """),
    Program("a plot's array in percent", """
        h = x.sigmoid()
        percent = h.detach().numpy()
        percent *= 100  #!
        percent = percent * 100  #+
        loss = h.sum()
        loss.backward()
    """),
    Program("a clamp past the graph", """
        h = x * 3
        h.detach().clamp_(max=1)  #!
        h = h.clamp(max=1)  #+
        loss = h.sum()
        loss.backward()
    """),
    Program("batch norm in train mode between an eval forward and its backward", """
        norm = nn.BatchNorm1d(3).eval()
        loss = norm(torch.randn(4, 3) * v).square().sum()
        norm.train()(torch.randn(4, 3))  #!
        norm.train()  #+
        loss.backward()
    """),
    Program("a swapped weight", """
        loss = (x.square()).sum()
        x.data = torch.ones(6)  #!
        loss.backward()
    """),
    Program("an intermediate value swapped after it was squared", """
        h = x * 2
        loss = h.square().sum()
        h.data = h.data * 3  #!
        loss.backward()
    """),
    Program("a storage filled", """
        loss = x.square().sum()
        x.untyped_storage().fill_(0)  #!
        loss.backward()
    """),
]  # fmt: skip

PROGRAMS = [*CHECKPOINTED, *FUNCTIONS, *MEMORY, *HOOKED, *ELSEWHERE, *KNOWN]
