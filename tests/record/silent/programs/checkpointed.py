"""What a checkpoint computes again is not what its forward computed."""

from __future__ import annotations

from .program import Program

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
