"""What the backward of a custom Function reads has changed."""

from __future__ import annotations

from .program import Program

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
