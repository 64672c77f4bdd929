# %% [case]
# id: generated-delta-added-to-unflattened-base
# source: pytorch/pytorch PRs 26607 and 32839 (a view made in no_grad that is written outside of it), in a hypernetwork that makes weight deltas
# family: no_grad_view
# fails: 5
# culprit: 4:13
# saved: -
# needed: -
# effect: same
# observe: ([p.detach().clone() for p in hyper.parameters()], log, base_vector.clone())
# note: unflatten is decorated with no_grad and returns views of the frozen base vector; the generated delta is then added to these views in place with gradients on. Fix: w + delta out of place, which also leaves the base as it was.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(8)
users = 4
per_user = [(torch.randn(16, 5), torch.randn(5)) for _ in range(users)]
tasks = [(x, (x @ w).tanh().unsqueeze(1)) for x, w in per_user]
# %%
pretrained = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
shapes = [p.shape for p in pretrained.parameters()]
base_vector = nn.utils.parameters_to_vector(pretrained.parameters()).detach()
# %%
@torch.no_grad()
def unflatten(vector, shapes):
    """Cuts the flat vector into tensors of the given shapes."""
    pieces, start = [], 0
    for s in shapes:
        pieces.append(vector[start:start + s.numel()].view(s))
        start += s.numel()
    return pieces
# %%
class DeltaGenerator(nn.Module):
    def __init__(self, n_users, shapes, code=3):
        super().__init__()
        self.shapes = shapes
        self.codes = nn.Embedding(n_users, code)
        self.heads = nn.ModuleList(nn.Linear(code, s.numel()) for s in shapes)

    def forward(self, user, base):
        code = self.codes(torch.tensor(user))
        weights = unflatten(base, self.shapes)
        for w, head in zip(weights, self.heads):
            delta = 0.1 * head(code).view_as(w)
            w += delta
        return weights

def predict(weights, x):
    w1, b1, w2, b2 = weights
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)
# %%
hyper = DeltaGenerator(users, shapes)
opt = torch.optim.Adam(hyper.parameters(), lr=0.02)
log = []
for epoch in range(2):
    for user, (x, y) in enumerate(tasks):
        loss = F.mse_loss(predict(hyper(user, base_vector), x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())
# %% [fixed 4]
class DeltaGenerator(nn.Module):
    def __init__(self, n_users, shapes, code=3):
        super().__init__()
        self.shapes = shapes
        self.codes = nn.Embedding(n_users, code)
        self.heads = nn.ModuleList(nn.Linear(code, s.numel()) for s in shapes)

    def forward(self, user, base):
        code = self.codes(torch.tensor(user))
        weights = []
        for w, head in zip(unflatten(base, self.shapes), self.heads):
            delta = 0.1 * head(code).view_as(w)
            weights.append(w + delta)
        return weights

def predict(weights, x):
    w1, b1, w2, b2 = weights
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)
