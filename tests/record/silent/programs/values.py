"""Saved values written past the version counter, as people most often do."""

from __future__ import annotations

from .program import Program

VALUES = [
    Program("a clamp through .data after the loss", """
        loss = (x.exp() * x).sum()
        x.data.clamp_(-0.1, 0.1)  #!
        loss.backward()
    """),
    Program("rows that are to lose a number that the write has set to zero by then", """
        h = x.view(3, 2) * 2
        h -= h[:, :1]  #!
        h = h - h[:, :1]  #+
        loss = h.exp().sum()
        loss.backward()
    """),
    Program("a part that is added under another name", """
        h = x.view(2, 3) * 2
        first = h[:, 0:1]
        h.add_(first, alpha=3)  #!
        h = h + 3 * first  #+
        loss = h.exp().sum()
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
    Program("one element past the graph after another", """
        h = x * 3
        for i in range(6):
            h.data[i] *= 0.5  #!
            h = h * torch.where(torch.arange(6) == i, 0.5, 1.0)  #+
        loss = h.sum()
        loss.backward()
    """),
    Program("what has a graph of its own taken off past the graph", """
        h = x * 3
        h.data -= 0.1 * x.square()  #!
        h = h - 0.1 * x.square()  #+
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
    Program("a mask set under no_grad ahead of what saves", """
        h = x * 3
        with torch.no_grad():  #-
            h.masked_fill_(h > 1, 0)  #!
        h = h.masked_fill(h > 1, 0)  #+
        loss = (h + 1).square().sum()
        loss.backward()
    """),
    Program("rows set under no_grad by their numbers", """
        h = x * 3
        with torch.no_grad():  #-
            h[:2] = 5  #!
        h = torch.cat([torch.full((2,), 5.0, dtype=x.dtype), h[2:]])  #+
        loss = (h + 1).square().sum()
        loss.backward()
    """),
    Program("rows set to zero under no_grad, one by one", """
        h = x.view(3, 2) * 3
        with torch.no_grad():  #-
            for i in range(0, 3, 2):  #-
                h[i].zero_()  #!
        h = torch.stack([h[0] * 0, h[1], h[2] * 0])  #+
        loss = (h + 1).square().sum()
        loss.backward()
    """),
    Program("a mask multiplied under no_grad", """
        h = x * 3
        mask = (h < 1).to(h.dtype)
        with torch.no_grad():  #-
            h *= mask  #!
        h = h * mask  #+
        loss = (h + 1).square().sum()
        loss.backward()
    """),
    Program("a storage filled", """
        loss = x.square().sum()
        x.untyped_storage().fill_(0)  #!
        loss.backward()
    """),
]  # fmt: skip
