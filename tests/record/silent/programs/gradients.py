"""One gradient where several are meant."""

from __future__ import annotations

from .program import Program

GRADIENTS = [
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
]  # fmt: skip
