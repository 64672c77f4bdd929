"""Gradients that do not reach what an optimizer trains."""

from __future__ import annotations

from .program import Program

UNTRAINED = [
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
    Program("a number that a policy's loss is computed with", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with torch.no_grad():
            net(v).exp()
        action = torch.multinomial(net(v).detach().exp(), 1).item()
        loss = torch.zeros(1, requires_grad=True)
        for reward in (1.0, 2.0):
            chosen, value = net(v)[action], net(v).sum()
            loss = loss - chosen.item() * (reward - value.item())  #!
            loss = loss - chosen * (reward - value.item())  #+
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """, by="twin"),
    Program("a loss that is made anew of its number", """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        loss = net(v).square().sum()
        loss = torch.tensor(loss.item(), requires_grad=True)  #!
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """, by="twin"),
    Program("an optimizer whose net is detached, beside a number that is summed up", """
        net, head = nn.Linear(3, 3), nn.Linear(3, 1)
        of_net, of_head = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)
        size = torch.zeros(())
        for _ in range(2):
            of_net.zero_grad()
            of_head.zero_grad()
            code = net(v)
            size = size + code.norm().item() * 2
            code = code / code.norm().item()
            (v * 0.5).sum().item() + code.sum().item()
            loss = head(code.detach()).square().sum()  #!
            loss = head(code).square().sum()  #+
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
    Program("a loss of numbers that were collected", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        batches = torch.rand(2, 3)
        for _ in range(2):
            optimizer.zero_grad()
            losses = []
            for batch in batches:
                term = net(batch).square().sum()
                losses.append(term.item())  #!
                losses.append(term)  #+
            loss = torch.tensor(losses, requires_grad=True).mean()  #-
            loss = torch.stack(losses).mean()  #+
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a loss by numpy, of numbers that were collected", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        batches = torch.rand(2, 3)
        for _ in range(2):
            optimizer.zero_grad()
            losses = []
            for batch in batches:
                losses.append(net(batch).square().sum().item())  #!
                losses.append(net(batch).square().sum())  #+
            loss = torch.tensor(numpy.mean(losses), requires_grad=True)  #-
            loss = torch.stack(losses).mean()  #+
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a loss of numbers that were put into a tensor, with a print", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        batches = torch.rand(2, 3)
        for _ in range(2):
            optimizer.zero_grad()
            losses = torch.zeros(2)
            for i, batch in enumerate(batches):
                term = net(batch).square().sum()
                print(i, term.argmax().item())
                losses[i] = float(term)  #!
                losses[i] = term  #+
            loss = losses.sum()
            loss.requires_grad = True  #-
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a loss that is a Variable of its value", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(v).square().sum()
            loss = torch.autograd.Variable(loss, requires_grad=True)  #!
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a loss that is a Parameter of its value", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(v).square().sum()
            loss = nn.Parameter(loss)  #!
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("an output that is copied into a new leaf", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            out = torch.tensor(net(v), requires_grad=True)  #!
            out = net(v)  #+
            loss = out.square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("an output that comes back from numpy as a leaf", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            out = torch.from_numpy(net(v).detach().numpy()).requires_grad_()  #!
            out = net(v)  #+
            loss = out.square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("tensors of which torch.Tensor makes a loss", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        batches = torch.rand(2, 3)
        for _ in range(2):
            optimizer.zero_grad()
            parts = [net(batch).square().sum() for batch in batches]
            loss = torch.Tensor(parts).mean()  #!
            loss.requires_grad_()  #-
            loss = torch.stack(parts).mean()  #+
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a prediction that is the largest of the outputs", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            with torch.no_grad():
                print(net(v).argmax() == 1)
            chosen = net(v).argmax(-1).float()  #!
            chosen = net(v).amax(-1)  #+
            loss = (chosen - 2.0).square()
            loss.requires_grad_()  #-
            loss.backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("a prediction by a threshold, in a function", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            def decided(x):
                return (net(x).sigmoid() > 0.5).float()  #!
                return net(x).sigmoid()  #+
            loss = (decided(v) - 1.0).square().sum()
            loss.requires_grad_()  #-
            loss.backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("features without gradients, and a loss that is told to require them", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with torch.no_grad():
            mean = net(v).mean()
        for _ in range(2):
            optimizer.zero_grad()
            with torch.no_grad():  #!
                out = net(v)  #-
            out = net(v)  #+
            loss = (out - mean).square().sum()
            loss.requires_grad_()  #-
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("an output that is rounded on its way to the loss", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            out = net(v).sigmoid()
            right = (out.round() == 1.0).sum()
            chosen = torch.round(out)  #!
            chosen = out  #+
            w.square().sum().backward()
            loss = (chosen - 1.0).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a sign that is taken in a method", """
        class Binary(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 2)
            def forward(self, x):
                y = self.layer(x)
                return y.sign()  #!
                return y  #+
        net = Binary()
        optimizer = torch.optim.Adam(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = (net(v) - 0.5).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("parameters that are frozen, and a loss that is told to require a gradient", """
        net = nn.Linear(3, 2)
        for parameter in net.parameters():
            parameter.requires_grad = False  #-
            parameter.requires_grad = True  #+
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(v.detach()).square().sum()
            loss.requires_grad = True  #!
            loss.backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("a term of a loss that begins with the largest of the outputs", """
        class Edges(nn.Module):
            def forward(self, out):
                chosen = out.argmax(-1).float()  #!
                chosen = out.amax(-1)  #+
                return (chosen - 0.5).square().mean()
        net, edges = nn.Linear(3, 2), Edges()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            out = net(v)
            right = (out.argmax(-1) == 1).float().mean()
            loss = out.square().mean() + 0.5 * edges(out)
            loss.backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("a penalty on how many weights there are", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            penalty = (net.weight.abs() > 0.1).sum()  #!
            penalty = net.weight.abs().sum()  #+
            loss = net(v).square().sum()
            (loss + 0.01 * penalty).backward()
            optimizer.step()
    """, by="twin", fixable=False),
    Program("two terms, each of which is a copy with a gradient of its own", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            sizes = torch.tensor([net(v)[i].square() for i in range(2)], requires_grad=True).sum()  #!
            angles = torch.tensor([net(v)[i].cos() for i in range(2)], requires_grad=True).sum()  #!
            sizes = torch.stack([net(v)[i].square() for i in range(2)]).sum()  #+
            angles = torch.stack([net(v)[i].cos() for i in range(2)]).sum()  #+
            loss = sizes + 0.1 * angles
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a number that is printed as well, before and behind the cut", """
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            losses = []
            for i in range(2):
                term = net(v)[i].square()
                print(term.item())  #!
                losses.append(term.item())  #!
                losses.append(term)  #+
                print(term.item())
            loss = torch.tensor(losses, requires_grad=True).mean()  #-
            loss = torch.stack(losses).mean()  #+
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a copy of what a generator gives, beside one that is detached on purpose", """
        maker, critic = nn.Linear(3, 3), nn.Linear(3, 1)
        of_maker, of_critic = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(critic.parameters(), 0.1)
        for _ in range(2):
            made = maker(v)
            of_critic.zero_grad()
            critic(made.detach()).square().sum().backward()
            of_critic.step()
            of_maker.zero_grad()
            copied = torch.tensor(made.tolist())  #-
            copied = made  #+
            critic(copied).mean().backward()
            of_maker.step()  #<
    """, by="twin", fixable=False),
    Program("a layer that computes with the data of its weight", """
        class Dense(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 3))
            def forward(self, x):
                weight = self.weight.data  #!
                weight = self.weight  #+
                return torch.relu(x @ weight)
        net = nn.Sequential(Dense(), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(torch.ones(2, 3)).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a weight read as data in the later of two losses, in a function of its own", """
        def train():
            weight, other = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.ones(2))
            optimizer = torch.optim.SGD([weight, other], 0.1)
            for _ in range(2):
                optimizer.zero_grad()
                first = (other * v.sum()).square().sum()
                read = weight  #+
                read = weight.data  #!
                second = (v @ read * other).square().sum()
                first.backward()
                second.backward()
                optimizer.step()
        train()
    """, by="twin"),
    Program("an angle that is lost in the tensor that is made of it", """
        angle, shift = torch.zeros((), requires_grad=True), torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([angle, shift], 0.1)
        points = torch.tensor([1.0]).expand(4, 2)
        for _ in range(2):
            optimizer.zero_grad()
            c, s = angle.cos(), angle.sin()
            turn = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])  #+
            turn = torch.tensor([[c, -s], [s, c]])  #!
            loss = (points @ turn + shift * v[:2] - points * 3).cumsum(1).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a bias that is added as data, behind a transposition", """
        weight, bias = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.ones(2, 1))
        optimizer = torch.optim.Adam([weight, bias], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            shift = bias.t()  #+
            shift = bias.data.t()  #!
            loss = (v @ weight + 2 * shift).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a term of a loss that is a copy, of parameters that another term trains", """
        blocks, head = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]), nn.Linear(3, 1)
        optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            h, loads = v, []
            for block in blocks:
                h = torch.relu(block(h))
                loads.append(h.square().mean())
            balance = torch.stack(loads).mean()  #+
            balance = torch.tensor(loads).mean()  #!
            loss = head(h).square().sum() + 0.1 * balance
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("a term that is subtracted, a copy of one tensor", """
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            size = weight.abs().sum()
            kept = size  #+
            kept = torch.tensor(size)  #!
            loss = (v * weight).cumsum(0).mean() - 0.5 * kept
            loss.backward()
            optimizer.step()
    """, by="twin"),
    Program("data that a layer adds its offset to, in each iteration anew", """
        class Offset(nn.Module):
            def __init__(self):
                super().__init__()
                self.offset = nn.Parameter(torch.zeros(3))
            def forward(self, h):
                h = h + self.offset  #+
                h += self.offset  #!
                return h
        net = nn.Sequential(Offset(), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        data = torch.ones(2, 3)
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(data).square().sum()
            loss.backward()
            optimizer.step()
    """, by="twin"),
]  # fmt: skip
