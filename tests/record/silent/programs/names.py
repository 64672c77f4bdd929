"""One tensor under two names, changed through one of them; autograd follows, so that the twin tells what was meant."""

from __future__ import annotations

from .program import Program

NAMES = [
    Program("a value kept by a second name and centred in place", """
        h = x * 2
        raw = h
        h -= h.detach().mean()  #!
        h = h - h.detach().mean()  #+
        loss = (raw.exp() + h.square()).sum()
        loss.backward()
    """, by="twin"),
    Program("an activation in place within an expression", """
        c = x * 2
        h = x * c.tanh_()  #!
        h = x * c.tanh()  #+
        loss = (h + c).sum()
        loss.backward()
    """, by="twin"),
    Program("states collected in a list", """
        state = x * 1
        states = []
        for i in range(3):
            state *= i + 1  #!
            state = state * (i + 1)  #+
            states.append(state)
        loss = torch.stack(states).square().sum()
        loss.backward()
    """, by="twin"),
    Program("states collected in a list that a loop goes through", """
        state = x * 1
        states = []
        for i in range(3):
            state *= i + 1  #!
            state = state * (i + 1)  #+
            states.append(state)
        loss = 0
        for one in states:
            loss = loss + one.square().sum()
        loss.backward()
    """, by="twin"),
    Program("a helper that works on what it is handed", """
        def scaled(value):
            value *= 3  #!
            value = value * 3  #+
            return value

        h = x * 2
        out = scaled(h)
        loss = (h * out).sum()
        loss.backward()
    """, by="twin"),
    Program("a caller's second name", """
        def shifted(value):
            value += torch.arange(6)  #!
            value = value + torch.arange(6)  #+
            return value

        h = x * 2
        skip = h
        h = shifted(h)
        loss = (skip.cos() + h).sum()
        loss.backward()
    """, by="twin"),
    Program("an activation module in place beside a skip connection", """
        act = torch.nn.ReLU(inplace=True)  #-
        act = torch.nn.ReLU()  #+
        h = x - 0.3
        out = act(h)  #!
        out = act(h)  #+
        loss = (out + h).sum()
        loss.backward()
    """, by="twin"),
]  # fmt: skip
