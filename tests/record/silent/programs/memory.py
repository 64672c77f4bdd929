"""Memory that is written where no call of torch's shows it, or under a layout of another kind."""

from __future__ import annotations

from .program import Program

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
