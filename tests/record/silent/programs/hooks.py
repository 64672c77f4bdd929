"""Hooks that pack saved tensors, or that write into the gradients they are handed."""

from __future__ import annotations

from .program import Program

HOOKS = [
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
