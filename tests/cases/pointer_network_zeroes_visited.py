# %% [case]
# id: pointer-network-zeroes-visited
# source: travelling salesman pointer network, visited cities removed from the probabilities
# family: modified
# fails: 3
# culprit: 1:17
# saved: 1:15
# needed: 3:5
# effect: same
# observe: [p.grad.clone() for p in ptr.parameters()]
# note: softmax keeps its result; visited entries are zeroed and the rest renormalised in place. Fix: probs = probs * (~visited), probs = probs / sum.
# %%
import torch
import torch.nn as nn

class Pointer(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.enc = nn.Linear(2, d)
        self.wq, self.wr = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v = nn.Parameter(torch.randn(d))
        self.rnn = nn.GRUCell(d, d)

    def decode_step(self, x, h, ref, visited):
        h = self.rnn(x, h)
        u = torch.tanh(self.wr(ref) + self.wq(h).unsqueeze(1)) @ self.v
        probs = torch.softmax(u, dim=-1)
        # no city twice
        probs[visited] = 0.
        probs /= probs.sum(-1, keepdim=True)
        return probs, h

    def forward(self, cities):
        ref = self.enc(cities)
        B, N, D = ref.shape
        h, x = ref.mean(1), ref.new_zeros(B, D)
        visited = torch.zeros(B, N, dtype=torch.bool)
        logp, tour = 0., []
        for _ in range(N - 1):
            probs, h = self.decode_step(x, h, ref, visited)
            a = probs.argmax(-1)
            logp = logp + probs.gather(1, a[:, None]).log().squeeze(1)
            visited = visited.scatter(1, a[:, None], True)
            x = ref[torch.arange(B), a]
            tour.append(a)
        return torch.stack(tour, 1), logp
# %%
torch.manual_seed(0)
ptr = Pointer()
cities = torch.rand(3, 5, 2)
# %%
tour, logp = ptr(cities)
pts = cities.gather(1, tour[..., None].expand(-1, -1, 2))
length = (pts[:, 1:] - pts[:, :-1]).norm(dim=-1).sum(1)
reinforce = ((length - length.mean()) * logp).mean()
reinforce.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class Pointer(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.enc = nn.Linear(2, d)
        self.wq, self.wr = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v = nn.Parameter(torch.randn(d))
        self.rnn = nn.GRUCell(d, d)

    def decode_step(self, x, h, ref, visited):
        h = self.rnn(x, h)
        u = torch.tanh(self.wr(ref) + self.wq(h).unsqueeze(1)) @ self.v
        probs = torch.softmax(u, dim=-1)
        # no city twice
        probs = probs.masked_fill(visited, 0.)
        probs = probs / probs.sum(-1, keepdim=True)
        return probs, h

    def forward(self, cities):
        ref = self.enc(cities)
        B, N, D = ref.shape
        h, x = ref.mean(1), ref.new_zeros(B, D)
        visited = torch.zeros(B, N, dtype=torch.bool)
        logp, tour = 0., []
        for _ in range(N - 1):
            probs, h = self.decode_step(x, h, ref, visited)
            a = probs.argmax(-1)
            logp = logp + probs.gather(1, a[:, None]).log().squeeze(1)
            visited = visited.scatter(1, a[:, None], True)
            x = ref[torch.arange(B), a]
            tour.append(a)
        return torch.stack(tour, 1), logp
